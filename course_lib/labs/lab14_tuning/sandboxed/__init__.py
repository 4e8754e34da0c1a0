"""The program of lab 14 that runs learner code."""
