"""Lab 7, dynamic shapes. Open `lab.py` first: tasks, checks and hints."""
