"""Programs of lab 14 that run beside learner code, or that run a graph."""
