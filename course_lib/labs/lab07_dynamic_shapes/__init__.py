"""Lab 07, dynamic shapes. Open `lab.py` first: tasks, checks and hints."""
