"""Q/DQ nodes, fake quantization, and what a CPU can execute of them."""
