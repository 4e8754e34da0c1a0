"""The parts of `gpt2.py`: what is measured, PyTorch's side, and the processes that hold the candidates."""
