"""Models run by ONNX Runtime on the CPU, with one thread and without the library's engines."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime

from course_lib._util.cpu_int8 import session_options


def session(model: onnx.ModelProto, *, optimized: bool = True) -> onnxruntime.InferenceSession:
    options = session_options()
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model: onnx.ModelProto, x: np.ndarray, outputs: Sequence[str] | None = None, *, optimized: bool = True) -> np.ndarray:
    """The first output of a model with one input, or the first of `outputs`."""
    opened = session(model, optimized=optimized)
    return np.asarray(opened.run(outputs, {model.graph.input[0].name: x})[0])
