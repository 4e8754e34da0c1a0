"""Lab 8, a plugin. Open `lab.py` first: tasks, checks and hints."""
