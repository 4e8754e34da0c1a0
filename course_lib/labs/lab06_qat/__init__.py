"""Lab 06: quantization-aware training of a network that calibration alone cannot save."""
