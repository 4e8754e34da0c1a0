"""Lecture 4: convolution algorithms, tiles, and tactics."""
