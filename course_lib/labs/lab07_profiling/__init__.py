"""Lab 7, profiling. Open `lab.py` first: tasks, checks and hints."""
