"""Lecture 11: the recorded results, and what disturbs a measurement."""
