"""The sections of `benchmarks/torch_trt.py`, which run in a process that has Torch-TensorRT 2.2 and numpy."""
