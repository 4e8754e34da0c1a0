"""Parts of `raw_calls.py`."""
