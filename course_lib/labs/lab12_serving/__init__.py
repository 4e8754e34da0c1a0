"""Lab 12, serving. Open `lab.py` first: tasks, checks and hints."""
