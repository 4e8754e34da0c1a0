"""The shared library of the TensorRT course.

A learner describes an engine with an ONNX model and a `Recipe`; `engines.build` turns the two into a `Plan`, `engines.load`
into an `Engine`; `benchmark.compare` measures it against PyTorch and `grading.judge` grades it. Importing this package, or
any of its modules, loads neither torch nor onnxruntime nor TensorRT: each is imported where it is used.
"""

__version__ = "0.1.0"
