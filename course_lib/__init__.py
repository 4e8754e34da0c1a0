"""The shared library of the TensorRT course.

A learner describes an engine with an ONNX model and a `Recipe`. `engines.build` turns the two into a `Plan`, and `engines.load`
turns the plan into an `Engine`. `benchmark.compare` measures the engine against PyTorch, and `grading.judge` grades it.
Importing this package or any of its modules does not load torch, onnxruntime or TensorRT: each is imported where it is used.
"""

__version__ = "0.1.0"
