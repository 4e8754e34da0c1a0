"""Computations of the judge. They never run in a process with learner code."""
