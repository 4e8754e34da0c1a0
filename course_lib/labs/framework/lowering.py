"""A submission's Q/DQ model lowered for ONNX Runtime, in its own process, because the judge must not read untrusted files."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import course_lib
from course_lib.engines import Plan, split_target
from course_lib.engines.registry import find
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import CourseError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import run_isolated
from course_lib.recipe import Recipe

_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from course_lib.labs.framework.lowering import main; main()"
_DONE, _REJECTED = b"+", b"-"


def wanted(examiner: Examiner) -> bool:
    """Whether the runner is fast with INT8 only after lowering."""
    return find(split_target(examiner.runner)[0]).wants_lowered_int8()


def runnable(model: Path, recipe: Recipe, examiner: Examiner) -> Plan:
    """A plan of the lowered copy of a model, for the examiner's runner.

    Raises:
        EngineError: the model cannot be lowered.
        BuildError: the runner rejects the copy.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "model.onnx")
        copy.write_bytes(lowered(model.read_bytes(), launcher=examiner.launcher))
        return examiner.runnable(copy, recipe)


def lowered(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> bytes:
    """`precision.lower_for_onnxruntime` for a serialized model.

    Raises:
        EngineError: the model is rejected, or the process died or took too long.
    """
    answer = run_isolated(
        [sys.executable, "-I", "-c", _CHILD, _LIBRARY],
        model,
        launcher=launcher,
        time_limit_s=time_limit_s,
        max_bytes=2 * len(model) + (1 << 20),
    )
    if answer[:1] != _DONE:
        raise EngineError(f"the model cannot be lowered for ONNX Runtime: {answer[1:301].decode(errors='replace')}")
    return answer[1:]


def main() -> None:
    """The child's end: a model on standard input, its lowered copy or one line of complaint on standard output."""
    import onnx

    from course_lib.precision import lower_for_onnxruntime

    try:
        model = onnx.load_model_from_string(sys.stdin.buffer.read())
        answer = _DONE + lower_for_onnxruntime(model).SerializeToString()
    except Exception as error:  # a file can be broken in more ways than protobuf and onnx have classes for
        answer = _REJECTED + " ".join((str(error) if isinstance(error, CourseError) else repr(error)).split())[:300].encode()
    sys.stdout.buffer.write(answer)
