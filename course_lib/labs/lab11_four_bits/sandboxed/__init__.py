"""Programs of lab 11 that run beside learner code, or that run a graph."""
