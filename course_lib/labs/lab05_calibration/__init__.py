"""Lab 05, calibration. Open `lab.py` first: tasks, checks and hints."""
