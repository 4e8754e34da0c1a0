"""One graph for builder and runner: a submission's model with its constants folded, or the reason why it is not one computation.

The builder shows which layers an engine has, and the runner answers and is timed. Both must see the same computation. In a graph, an
integer product, a shape or a condition can choose between two networks. Such a graph can be read in two ways, because compilers
differ in integer overflow, in what they evaluate in advance, and in whether they have float64. The course therefore writes float32
for float64, as TensorRT computes it, and evaluates constants itself, before both receive the graph. `graph_rules` rejects the
remaining choices.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.errors import TWO_READINGS, BuildError, EngineError
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import Rejected, transform, transformed

if TYPE_CHECKING:
    from onnx import ModelProto, TensorProto

_FLOAT, _DOUBLE = 1, 11  # TensorProto's numbers
_TYPE_OF_OUTPUT = frozenset({"to", "dtype", "output_dtype", "stash_type", "precision"})


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
    _write_float32(model)
    check_values(model, fold(model))
    return model.SerializeToString()


def _write_float32(model: ModelProto) -> None:
    """Replace float64 by float32, in place: TensorRT has no float64, so a number beyond float32 is infinite for the runner too."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name in _TYPE_OF_OUTPUT and attribute.i == _DOUBLE:
                attribute.i = _FLOAT
            if attribute.HasField("t"):
                _narrow(attribute.t)
    for tensor in model.graph.initializer:
        _narrow(tensor)
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == _DOUBLE:
            value.type.tensor_type.elem_type = _FLOAT


def _narrow(tensor: TensorProto) -> None:
    import numpy as np
    from onnx import numpy_helper

    if tensor.data_type == _DOUBLE:
        with np.errstate(over="ignore"):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
