"""One graph for builder and runner: a submission's model without anything that could choose between two computations.

The builder shows which layers an engine has, and the runner answers and is timed. A branch, or an operator of another library, would
let the two differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.errors import TWO_READINGS, BuildError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import Rejected, transform, transformed

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_CONTROL_FLOW = "is control flow, which can hide what runs: submit one graph without branches, and unroll loops"
_RANDOM = "draws random numbers: the same inputs must give the same answers"
_SIZE_BY_VALUE = "makes outputs whose size depends on values: the size of each tensor must follow from the input shapes"
_REJECTED_OPERATORS = {
    **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), _CONTROL_FLOW),
    **dict.fromkeys(
        ("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli"), _RANDOM
    ),
    **dict.fromkeys(
        ("NonZero", "Compress", "Unique", "NonMaxSuppression", "StringNormalizer", "TfIdfVectorizer"), _SIZE_BY_VALUE
    ),
}
_ONNX = ("", "ai.onnx")


def fixed(model: Path, scratch: Path, examiner: Examiner) -> Path:
    """The model with a name for each node, as a file in `scratch`. It is read in an isolated process.

    Raises:
        BuildError: it is not an ONNX model, or not one plain graph.
    """
    try:
        checked = transformed(__name__, model.read_bytes(), launcher=examiner.launcher)
    except Rejected as error:
        raise BuildError(f"{model.name}: {error}", code=TWO_READINGS) from None
    except EngineError:
        raise BuildError("the file is not an ONNX model, or only a part of one") from None
    target = scratch / model.name
    target.write_bytes(checked)
    return target


def main() -> None:
    """Entry point of the child process."""
    transform(plain_graph)


def plain_graph(data: bytes) -> bytes:
    """The serialized model, after the checks, with a name of its own for each node: layers are counted by name.

    Raises:
        BuildError: functions, operators of other domains, weights in other files, control flow, random numbers, sizes that depend
            on values, or training mode.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    if model.functions:
        raise BuildError("the model defines functions. Inline them: onnx.inliner.inline_local_functions(model)")
    for tensor in model.graph.initializer:
        if tensor.external_data or tensor.data_location:
            raise BuildError(f"the constant {tensor.name[:60]!r} is in another file: save the model with its weights inside")
    for node in model.graph.node:
        _check_node(node)
    _name_nodes(model)
    return model.SerializeToString()


def _check_node(node: NodeProto) -> None:
    called = f"node {(node.name or ''.join(node.output[:1]))[:60]!r} ({node.op_type[:40]})"
    if node.domain not in _ONNX:
        raise BuildError(f"{called} is of the domain {node.domain[:40]!r}: use the operators of ONNX itself")
    has_graph = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
    if reason := _CONTROL_FLOW if has_graph else _REJECTED_OPERATORS.get(node.op_type):
        raise BuildError(f"{called} {reason}")
    if any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute):
        raise BuildError(f"{called} is in training mode: export the network in eval mode")


def _name_nodes(model: ModelProto) -> None:
    taken: set[str] = set()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.name or node.op_type}_{number}"
        taken.add(node.name)
