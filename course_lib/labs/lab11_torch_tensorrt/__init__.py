"""Lab 11, compile inside PyTorch: segments, wrong answers and settings of Torch-TensorRT 2.2."""
