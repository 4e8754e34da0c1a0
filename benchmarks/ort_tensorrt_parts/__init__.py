"""The sections of `benchmarks/ort_tensorrt.py`, which run in a process that has ONNX Runtime with its TensorRT provider."""
