"""A submission's Q/DQ model lowered for ONNX Runtime, in its own process, because the judge must not read untrusted files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from course_lib.engines import Plan, split_target
from course_lib.engines.registry import find
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
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
        return transformed(__name__, model, launcher=launcher, time_limit_s=time_limit_s)
    except EngineError as error:
        raise EngineError(f"the model cannot be lowered for ONNX Runtime: {error}") from None


def main() -> None:
    """The child's end."""
    transform(_lowered)


def _lowered(data: bytes) -> bytes:
    import onnx

    from course_lib.precision import lower_for_onnxruntime

    return lower_for_onnxruntime(onnx.load_model_from_string(data)).SerializeToString()
