"""A class: submissions are collected, graded in parallel, and journaled so that a killed run loses nothing."""
