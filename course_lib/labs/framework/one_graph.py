"""One graph for builder and runner: a submission's model with its constants folded, or the reason why it is not one computation.

The builder shows which layers an engine has, and the runner answers and is timed. Both must see the same computation. A graph that lets
an integer product, a shape or a condition choose between two networks can be read in two ways, because compilers differ in how
integers overflow and in what they evaluate in advance. The course therefore evaluates constants itself, before both see the graph,
and `graph_rules` rejects what still chooses.
"""

from __future__ import annotations

import sys
from pathlib import Path

import course_lib
from course_lib.errors import TWO_READINGS, BuildError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import run_isolated

_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from course_lib.labs.framework.one_graph import main; main()"
_DONE, _REJECTED = b"+", b"-"
_LIMIT_S = 60.0


def fixed(model: Path, scratch: Path, examiner: Examiner) -> Path:
    """The model with its constants folded, as a file in `scratch`. It is read in an isolated process.

    Raises:
        BuildError: it is not an ONNX model, or `graph_rules` rejects it.
    """
    data = model.read_bytes()
    try:
        answer = run_isolated(
            [sys.executable, "-I", "-c", _CHILD, _LIBRARY],
            data,
            launcher=examiner.launcher,
            time_limit_s=_LIMIT_S,
            max_bytes=2 * len(data) + (1 << 20),
        )
    except EngineError:
        raise BuildError("the file is not an ONNX model, or only a part of one") from None
    if answer[:1] != _DONE:
        raise BuildError(f"{model.name}: {answer[1:501].decode(errors='replace')}", code=TWO_READINGS)
    target = scratch / model.name
    target.write_bytes(answer[1:])
    return target


def main() -> None:
    """The child's end: a model on standard input, the folded copy or one line of complaint on standard output."""
    import onnx

    from course_lib.labs.framework.constant_folding import fold
    from course_lib.labs.framework.graph_rules import check_form, check_values

    model = onnx.load_model_from_string(sys.stdin.buffer.read())
    try:
        check_form(model)
        kinds = fold(model)
        check_values(model, kinds)
        answer = _DONE + model.SerializeToString()
    except BuildError as error:
        answer = _REJECTED + " ".join(str(error).split())[:400].encode(errors="replace")
    sys.stdout.buffer.write(answer)
