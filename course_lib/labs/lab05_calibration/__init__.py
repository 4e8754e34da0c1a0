"""Lab 5, calibration. Open `lab.py` first: tasks, checks and hints."""
