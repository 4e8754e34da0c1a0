"""Lab 01, the first engine. Open `lab.py` first: tasks, checks and hints."""
