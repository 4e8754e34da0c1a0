"""What the grader computes from a submission of lab 14."""
