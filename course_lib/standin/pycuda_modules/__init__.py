"""Modules of the stand-in for the package `pycuda` that a program imports by name."""
