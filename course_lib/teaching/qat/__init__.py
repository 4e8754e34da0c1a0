"""Lecture 7: quantization-aware training by hand, and its figures."""
