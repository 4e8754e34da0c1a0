"""The shared parts of all labs: tasks and criteria, the examination, races, and processes for learner code."""
