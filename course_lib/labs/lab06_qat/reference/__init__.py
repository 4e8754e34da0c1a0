"""Lab 06's reference: the file that a learner writes, and the network that it trains."""
