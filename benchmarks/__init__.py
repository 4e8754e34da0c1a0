"""Scripts that record, check and print the figures of the documentation; each runs as `python benchmarks/NAME.py`."""
