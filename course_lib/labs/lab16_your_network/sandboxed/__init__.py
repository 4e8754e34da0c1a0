"""Programs of lab 16 that run or read what was handed in."""
