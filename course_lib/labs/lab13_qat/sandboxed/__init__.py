"""Programs of lab 13 that run beside learner code."""
