"""Lab 08, a plugin. Open `lab.py` first: tasks, checks and hints."""
