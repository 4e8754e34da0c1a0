"""The bridge to nbgrader: its gradebook and feedback, and the learner's version of a lab."""
