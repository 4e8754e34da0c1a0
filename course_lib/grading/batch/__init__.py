"""A class: submissions are collected, graded side by side, and journaled so that a killed run loses nothing."""
