"""The parts of `separation.py`: which engines are compared, how they are built, and the processes that time them."""
