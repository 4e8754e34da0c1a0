"""A submission's ONNX model, which only processes of its own read: checked to be one plain graph, and rewritten for ONNX Runtime.

The builder shows which layers an engine has, and the runner answers and is timed. A branch, or an operator of another library, would
let the two compute differently. An INT8 model is lowered to the form that is fast in ONNX Runtime.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.engines import Plan, split_target
from course_lib.engines.registry import find
from course_lib.engines.worker.allowance import Launcher
from course_lib.errors import TWO_READINGS, BuildError, CourseError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.runner import NOT_IMPORTED, module_command, run_isolated
from course_lib.recipe import Recipe

if TYPE_CHECKING:
    from onnx import NodeProto

_REJECTED_OPERATORS = {
    "draws random numbers: the same inputs must give the same answers": (
        *("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"),
    ),
    "makes outputs whose size depends on values: the size of each tensor must follow from the input shapes": (
        *("NonZero", "Compress", "Unique", "NonMaxSuppression", "StringNormalizer", "TfIdfVectorizer"),
    ),
}
_DONE, _REJECTED, _FAILED = b"+", b"-", b"!"  # how an answer of `main` begins
_LONGEST = 500  # bytes of a complaint


def transformed(
    change: Callable[[bytes], bytes],
    model: bytes,
    file: str = "model.onnx",
    *,
    code: str = "",
    launcher: Launcher | None = None,
) -> bytes:
    """What a function of a module makes of a serialized model, in a process of its own. Messages begin with `file`, or what fails.

    Raises:
        BuildError: any error there, with the message and this `code` if it is a `CourseError`, or no answer in time.
    """
    command, limit = [*module_command(__name__), change.__module__, change.__name__], 2 * len(model) + (1 << 20)
    try:
        answer = run_isolated(command, model, launcher=launcher, time_limit_s=60.0, max_bytes=limit)
    except EngineError as error:
        raise BuildError(f"{file}: {error}", code=error.code) from None
    if answer[:1] == _REJECTED:
        raise BuildError(f"{file}: {answer[1:].decode(errors='replace')[:_LONGEST]}", code=code)
    if answer[:1] != _DONE:
        raise BuildError(f"{file}: its {len(model):,} bytes are not an ONNX model, or only a part of one: export it again")
    return answer[1:]


def main() -> None:
    """The child's end of `transformed`: a model on standard input, the changed one or one line of complaint on standard output."""
    module, function = sys.argv[2:]
    try:
        answer = _DONE + getattr(import_module(module), function)(sys.stdin.buffer.read())
    except CourseError as error:
        answer = _REJECTED + " ".join(str(error).split()).encode(errors="replace")
    except ImportError as error:
        answer = f"{NOT_IMPORTED}{error}".encode()
    except Exception:  # a file can be broken in more ways than protobuf and onnx have classes for
        answer = _FAILED
    sys.stdout.buffer.write(answer)


def fixed(model: Path, scratch: Path, examiner: Examiner) -> Path:
    """The `plain_graph` of a model, as a file in `scratch`."""
    graph = transformed(plain_graph, model.read_bytes(), model.name, code=TWO_READINGS, launcher=examiner.launcher)
    (target := scratch / model.name).write_bytes(graph)
    return target


def plain_graph(data: bytes) -> bytes:
    """The serialized model, after the checks, with a name of its own for each node: layers are counted by name."""
    import onnx

    model = onnx.load_model_from_string(data)
    if model.functions:
        raise BuildError("the model defines functions. Inline them: onnx.inliner.inline_local_functions(model)")
    for tensor in model.graph.initializer:
        if tensor.external_data or tensor.data_location:
            where = f"the constant {tensor.name[:60]!r} is in another file"
            raise BuildError(f"{where}: save the model with its weights inside, in torch.onnx.export with external_data=False")
    taken: set[str] = set()
    for number, node in enumerate(model.graph.node):
        _check_node(node)
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{number}"
        taken.add(node.name)
    return model.SerializeToString()


def _check_node(node: NodeProto) -> None:
    called = f"node {(node.name or ''.join(node.output[:1]))[:60]!r} ({node.op_type[:40]})"
    if node.domain not in ("", "ai.onnx"):
        raise BuildError(f"{called} is of the domain {node.domain[:40]!r}: use the operators of ONNX itself")
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        raise BuildError(
            f"{called} is control flow, which can hide what runs: submit one graph without branches, and unroll loops"
        )
    for reason, operators in _REJECTED_OPERATORS.items():
        if node.op_type in operators:
            raise BuildError(f"{called} {reason}")
    if any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute):
        raise BuildError(f"{called} is in training mode: export the network in eval mode")


def wants_lowering(examiner: Examiner) -> bool:
    """Whether the runner is fast with INT8 only after lowering."""
    return find(split_target(examiner.runner)[0]).wants_lowered_int8()


def runnable(model: Path, recipe: Recipe, examiner: Examiner, built: Plan | None = None) -> Plan:
    """`Examiner.runnable`, of a lowered copy of an INT8 model if the examiner's runner is fast only with that."""
    if recipe.precision != "int8" or not wants_lowering(examiner):
        return examiner.runnable(model, recipe, built)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "model.onnx")
        what = "the model cannot be lowered for ONNX Runtime"
        copy.write_bytes(transformed(_lower, model.read_bytes(), what, launcher=examiner.launcher))
        return examiner.runnable(copy, recipe)


def _lower(model: bytes) -> bytes:
    import onnx

    from course_lib.precision import lower_for_onnxruntime

    return bytes(lower_for_onnxruntime(onnx.load_model_from_string(model)).SerializeToString())
