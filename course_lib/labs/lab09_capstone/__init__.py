"""Lab 9, the capstone. Open `lab.py` first: tasks, checks and hints."""
