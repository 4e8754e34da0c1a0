"""Lab 04, mixed precision. Open `lab.py` first: tasks, checks and hints."""
