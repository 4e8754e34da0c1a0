"""What runs in the process of the learner's files."""
