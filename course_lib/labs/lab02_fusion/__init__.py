"""Lab 2, fusion. Open `lab.py` first: tasks, checks and hints."""
