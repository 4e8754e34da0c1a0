"""The parts of `networks.py`: what is measured, how it is built, and the processes that hold it."""
