"""Lecture 15: what a decoder computes, reads and keeps, how its requests share a GPU, and figures of both."""
