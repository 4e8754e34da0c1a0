"""The processes of lab 13: one reads a graph, one runs it, and one runs a learner's host."""
