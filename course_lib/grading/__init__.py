"""Grading: sandbox, judge, verdict, report, and the bridge to nbgrader."""
