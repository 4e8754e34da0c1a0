"""A submission's float32 graph in FP16, made in its own process: the numbers of a graph for ONNX Runtime, in the type that TensorRT fuses.

TensorRT does not have a fused attention for FP32. One graph in two types is still one computation, because the course itself
changes the type, of every constant, cast, input and output alike. Only ``logits`` stay float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.isolation import Rejected, transform, transformed
from course_lib.labs.lab13_generation.network import LARGEST_FP16

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

_FLOAT, _HALF = 1, 10  # TensorProto's numbers


def halved(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> bytes:
    """A serialized float32 model in FP16.

    Raises:
        BuildError: a constant does not fit into FP16, or the process died or took too long.
    """
    try:
        return transformed(__name__, model, launcher=launcher, time_limit_s=time_limit_s)
    except Rejected as error:
        raise BuildError(f"decoder.onnx: {error}") from None
    except EngineError as error:
        raise BuildError(f"decoder.onnx cannot be turned into FP16: {error}") from None


def main() -> None:
    """Entry point of the child process."""
    transform(_halved)


def _halved(data: bytes) -> bytes:
    import onnx
    from onnx import helper

    model = onnx.load_model_from_string(data)
    graph = model.graph
    for tensor in graph.initializer:
        _halve(tensor)
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == _FLOAT and info.name != "logits":
            info.type.tensor_type.elem_type = _HALF
    del graph.value_info[:]
    for node in graph.node:
        _halve_attributes(node)
        node.output[:] = ["logits_in_half" if name == "logits" else name for name in node.output]
        node.input[:] = ["logits_in_half" if name == "logits" else name for name in node.input]
    graph.node.append(helper.make_node("Cast", ["logits_in_half"], ["logits"], name="/head/Cast", to=_FLOAT))
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _halve_attributes(node: NodeProto) -> None:
    for one in node.attribute:
        if one.HasField("t"):
            _halve(one.t)
        if node.op_type == "Cast" and one.name == "to" and one.i == _FLOAT:
            one.i = _HALF


def _halve(tensor: TensorProto) -> None:
    from onnx import numpy_helper

    if tensor.data_type != _FLOAT:
        return
    array = numpy_helper.to_array(tensor)
    largest = float(np.abs(array).max(initial=0.0))
    if largest > LARGEST_FP16:
        raise BuildError(
            f"the constant {tensor.name[:60]!r} has the size {largest:.3g}, and FP16 ends at {LARGEST_FP16:g}: a mask needs a number "
            "that the compiler's type can hold, such as -6e4"
        )
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
