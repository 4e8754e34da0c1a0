"""What `engines.py` is made of."""
