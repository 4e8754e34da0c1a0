"""Lab 10, profiling. Open `lab.py` first: tasks, checks and hints."""
