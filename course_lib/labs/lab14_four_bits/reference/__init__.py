"""Lab 14's reference: two files that a learner writes, and the choice of a form for each product."""
