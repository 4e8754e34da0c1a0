"""Lab 3, calibration. Open `lab.py` first: tasks, checks and hints."""
