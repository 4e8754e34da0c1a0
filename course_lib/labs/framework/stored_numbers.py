"""The numbers that a submission's graph stores, read in a process of their own, which a file could take over.

Such a lab gives a graph, and a submission is this graph with other numbers in it. The judge writes its own graph from the numbers,
so no node of a submission is ever run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from course_lib.errors import BuildError
from course_lib.labs.framework.isolation import read_hostile

if TYPE_CHECKING:
    from onnx import ModelProto

_T = TypeVar("_T")
Take = Callable[[Any, tuple[int, ...]], np.ndarray]  # the next array, from its type and shape


def read(answer: bytes, make: Callable[[Any, Take], _T]) -> _T:
    """What `make` makes of an answer: a line of JSON, and the bytes of arrays.

    Args:
        make: gets the JSON value, and a function that takes the next array. It may fail with any error.

    Raises:
        EngineError: the answer is shorter or longer than what is taken, or has another form.
    """
    head, _, data = answer.partition(b"\n")
    start = 0

    def take(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
        nonlocal start
        end = start + np.dtype(dtype).itemsize * int(np.prod(shape))
        part, start = data[start:end], end
        return np.frombuffer(part, dtype).reshape(shape)

    def whole(value: Any) -> _T:
        found = make(value, take)
        if start != len(data):
            raise ValueError("too long")
        return found

    return read_hostile(head, whole, "the process that read the graph sent an invalid answer")


def check_form(model: ModelProto, given: ModelProto, file: str, advice: str) -> None:
    """Whether a model has the operator set, the inputs and the outputs of the given one, and stores numbers in its constants alone.

    Raises:
        BuildError: it does not. The message ends with `advice`.
    """

    def reject(message: str) -> NoReturn:
        raise BuildError(f"{message}; {advice}")

    graph = model.graph
    found, wanted = ({one.domain: one.version for one in each.opset_import}.get("") for each in (model, given))
    if found != wanted:
        reject(f"the operator set is {found}, expected {wanted}")
    if model.functions or graph.sparse_initializer or graph.quantization_annotation or model.training_info:
        reject("it has functions, sparse constants or annotations, which are not read")
    for tensor in graph.initializer:
        if tensor.external_data or tensor.data_location:
            reject(f"the constant {tensor.name[:60]!r} is in another file. All that is stored must be in {file}")
    for side in ("input", "output"):
        if [plain(info) for info in getattr(graph, side)] != [plain(info) for info in getattr(given.graph, side)]:
            reject(f"its {side}s are not those of the given graph")


def by_name(rows: Sequence[Any], kind: str) -> dict[str, Any]:
    """Nodes or constants by their names.

    Raises:
        BuildError: two have the same name.
    """
    found: dict[str, Any] = {}
    for one in rows:
        if one.name in found:
            raise BuildError(f"two {kind}s have the same name, {one.name[:60]!r}: give each its own")
        found[one.name] = one
    return found


def plain(value: Any, free: Sequence[int] = ()) -> bytes:
    """A part of a graph without comments, its attributes in order; a node also without its inputs at the places `free`."""
    copied = type(value).FromString(value.SerializeToString())
    copied.ClearField("doc_string")
    copied.ClearField("metadata_props")
    for place in free:
        if place < len(copied.input):
            copied.input[place] = ""
    if hasattr(copied, "attribute"):
        copied.attribute.sort(key=lambda one: one.name)
    return bytes(copied.SerializeToString(deterministic=True))
