"""Programs of lab 06 that run beside learner code."""
