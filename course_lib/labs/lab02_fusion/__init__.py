"""Lab 02, fusion. Open `lab.py` first: tasks, checks and hints."""
