"""The judge: takes the files of a submission, examines them, and writes a verdict."""
