"""Timelines: recorded, and drawn."""
