"""Submissions for the labs' tests: right in another way, almost right, or made to cheat. One module for each lab; several use `hostile`."""
