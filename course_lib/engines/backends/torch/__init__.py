"""PyTorch itself, as the baseline: eager, compiled, and in CUDA graphs."""
