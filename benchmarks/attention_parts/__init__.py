"""The parts of `attention.py`, which `networks.py` and `gpt2.py` use too: attention kernels in CUDA, and plugins that call them."""
