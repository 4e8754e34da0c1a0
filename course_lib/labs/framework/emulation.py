"""A submission's half-precision model as float32 arithmetic between roundings, made in its own process.

ONNX Runtime on a CPU has few FP16 kernels. Where it has none it computes in float32, and it leaves out the roundings between
two such nodes: an overflow that every GPU would show is gone. `precision.emulate` puts every rounding back.
"""

from __future__ import annotations

import sys
from pathlib import Path

import course_lib
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.isolation import run_isolated

_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from course_lib.labs.framework.emulation import main; main()"
_DONE, _REJECTED = b"+", b"-"


def emulated(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> bytes:
    """`precision.emulate` for a serialized model.

    Raises:
        BuildError: the model cannot be emulated, or the process died or took too long.
    """
    command = [sys.executable, "-I", "-c", _CHILD, _LIBRARY]
    try:
        answer = run_isolated(
            command, model, launcher=launcher, time_limit_s=time_limit_s, max_bytes=2 * len(model) + (1 << 20)
        )
    except EngineError as error:
        raise BuildError(f"model.onnx cannot be emulated: {error}") from None
    if answer[:1] != _DONE:
        raise BuildError(f"model.onnx cannot be emulated: {answer[1:301].decode(errors='replace')}")
    return answer[1:]


def main() -> None:
    """The child's end: a model on standard input, its copy or one line of complaint on standard output."""
    try:
        answer = _DONE + _emulated(sys.stdin.buffer.read())
    except Exception as error:  # a file can be broken in more ways than protobuf and onnx have classes for
        answer = _REJECTED + " ".join(str(error).split())[:300].encode()
    sys.stdout.buffer.write(answer)


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
