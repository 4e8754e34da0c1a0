"""One graph for builder and runner: a submission's model with its constants folded, or the reason why it is not one computation.

The builder shows which layers an engine has, and the runner answers and is timed. Both must see the same computation. In a graph, an
integer product, a shape or a condition can choose between two networks. Such a graph can be read in two ways, because compilers
differ in integer overflow and in what they evaluate in advance. The course therefore evaluates constants itself, before both
receive the graph, and `graph_rules` rejects the remaining choices.
"""

from __future__ import annotations

from pathlib import Path

from course_lib.errors import TWO_READINGS, BuildError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import Rejected, transform, transformed


def fixed(model: Path, scratch: Path, examiner: Examiner) -> Path:
    """The model with its constants folded, as a file in `scratch`. It is read in an isolated process.

    Raises:
        BuildError: it is not an ONNX model, or `graph_rules` rejects it.
    """
    try:
        folded = transformed(__name__, model.read_bytes(), launcher=examiner.launcher)
    except Rejected as error:
        raise BuildError(f"{model.name}: {error}", code=TWO_READINGS) from None
    except EngineError:
        raise BuildError("the file is not an ONNX model, or only a part of one") from None
    target = scratch / model.name
    target.write_bytes(folded)
    return target


def main() -> None:
    """Entry point of the child process."""
    transform(_folded)


def _folded(data: bytes) -> bytes:
    import onnx

    from course_lib.labs.framework.constant_folding import fold
    from course_lib.labs.framework.graph_rules import check_form, check_values

    model = onnx.load_model_from_string(data)
    check_form(model)
    check_values(model, fold(model))
    return model.SerializeToString()
