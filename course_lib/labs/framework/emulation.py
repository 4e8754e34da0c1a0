"""A submission's half-precision model as float32 arithmetic between roundings, made in its own process.

ONNX Runtime on a CPU has few FP16 kernels. Without one it computes in float32 and omits the rounding between two such nodes.
An overflow that every GPU would show is then missing. `precision.emulate` adds every rounding again.
"""

from __future__ import annotations

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.isolation import transform, transformed


def emulated(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> bytes:
    """`precision.emulate` for a serialized model.

    Raises:
        BuildError: the model cannot be emulated, or the process died or took too long.
    """
    try:
        return transformed(__name__, model, launcher=launcher, time_limit_s=time_limit_s)
    except EngineError as error:
        raise BuildError(f"model.onnx cannot be emulated: {error}") from None


def main() -> None:
    """The child's end."""
    transform(_emulated)


def _emulated(data: bytes) -> bytes:
    import onnx
    import onnx_ir as ir

    from course_lib.precision import emulate

    model = onnx.shape_inference.infer_shapes(onnx.load_model_from_string(data))
    opened = ir.from_proto(model)
    if opened.functions or next(opened.graph.subgraphs(), None) is not None:
        raise BuildError("it holds subgraphs (If, Loop) or functions, whose types are not visible from outside")
    for node in opened.graph:
        for value in node.outputs:
            if value.name and value.dtype is None:
                raise BuildError(
                    f"the type of {value.name!r}, which node {node.name!r} makes, is unknown: add it to value_info"
                )
    return bytes(emulate(model).SerializeToString())
