"""A submission's model rewritten for ONNX Runtime, in its own process, because the judge must not read untrusted files.

An INT8 model is lowered to the form that is fast there. A half-precision model is emulated: ONNX Runtime on a CPU has few FP16
kernels. Without one it computes in float32 and omits the rounding between two such nodes, and an overflow that every GPU would show is
missing.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from course_lib.engines import Plan, split_target
from course_lib.engines.registry import find
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import transform, transformed
from course_lib.recipe import Recipe


def wanted(examiner: Examiner) -> bool:
    """Whether the runner is fast with INT8 only after lowering."""
    return find(split_target(examiner.runner)[0]).wants_lowered_int8()


def runnable(model: Path, recipe: Recipe, examiner: Examiner, built: Plan | None = None) -> Plan:
    """`Examiner.runnable`, of a lowered copy of an INT8 model if the examiner's runner is fast only with that.

    Raises:
        EngineError: the model cannot be lowered.
        BuildError: the runner rejects the model or the copy.
    """
    if recipe.precision != "int8" or not wanted(examiner):
        return examiner.runnable(model, recipe, built)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "model.onnx")
        copy.write_bytes(lowered(model.read_bytes(), launcher=examiner.launcher))
        return examiner.runnable(copy, recipe)


def lowered(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> bytes:
    """`precision.lower_for_onnxruntime` for a serialized model.

    Raises:
        EngineError: the model is rejected, or the process died or took too long.
    """
    try:
        return transformed(__name__, model, function="lower", launcher=launcher, time_limit_s=time_limit_s)
    except EngineError as error:
        raise EngineError(f"the model cannot be lowered for ONNX Runtime: {error}") from None


def emulated(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> bytes:
    """`precision.emulate` for a serialized model: float32 arithmetic between roundings.

    Raises:
        BuildError: the model cannot be emulated, or the process died or took too long.
    """
    try:
        return transformed(__name__, model, function="emulate", launcher=launcher, time_limit_s=time_limit_s)
    except EngineError as error:
        raise BuildError(f"model.onnx cannot be emulated: {error}") from None


def lower() -> None:
    """The child's end of `lowered`."""
    import onnx

    from course_lib.precision import lower_for_onnxruntime

    transform(lambda data: lower_for_onnxruntime(onnx.load_model_from_string(data)).SerializeToString())


def emulate() -> None:
    """The child's end of `emulated`."""
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
