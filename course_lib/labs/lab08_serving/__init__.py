"""Lab 8, serving. Open `lab.py` first: tasks, checks and hints."""
