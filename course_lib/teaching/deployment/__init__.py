"""Lecture 14: figures, batching, fallback chains, and the search for the first node that differs."""
