"""The judge of lab 13: it holds the right answers and the clock, and no part of a submission."""
