"""Lab 15, the capstone. Open `lab.py` first: tasks, checks and hints."""
