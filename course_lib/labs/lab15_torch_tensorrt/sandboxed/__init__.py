"""Programs of lab 15: two run learner code, one runs an exported program."""
