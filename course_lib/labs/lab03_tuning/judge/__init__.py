"""What the grader draws, simulates and compares in lab 03."""
