"""The program of lab 06 that runs beside learner code."""
