"""Lecture 9: memory coalescing, RoPE figures, and source code in a notebook."""
