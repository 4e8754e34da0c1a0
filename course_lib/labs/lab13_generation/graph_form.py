"""The form of a submission's graph, examined in its own process: its inputs and outputs, and which operator writes each cache."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError
from course_lib.labs.framework import isolation
from course_lib.labs.framework.isolation import read_hostile, transform
from course_lib.labs.lab13_generation.network import CACHE_SHAPE, CACHES, LENGTH, VOCABULARY

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

IN_PLACE = "TensorScatter"
_PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum"})
_MOST_PRODUCTS = 200
_FLOAT, _INT64 = 1, 7  # TensorProto's numbers
_WORDS = {_FLOAT: "float32", _INT64: "int64", 10: "float16"}
_Expected = Mapping[str, tuple[int, tuple[int | None, ...]]]
_INPUTS: _Expected = {"tokens": (_INT64, (1, None)), "position": (_INT64, (1,))} | {
    f"past_{n}": (_FLOAT, CACHE_SHAPE) for n in CACHES
}
_OUTPUTS: _Expected = {"logits": (_FLOAT, (1, 1, VOCABULARY))} | {f"present_{n}": (_FLOAT, CACHE_SHAPE) for n in CACHES}
_GROWS = f"A cache that grows is copied in each step. Give it all {LENGTH} slots from the start, and write new entries at `position`."


@dataclass(frozen=True)
class GraphForm:
    """How the caches of a graph are written.

    Attributes:
        writers: for each of `CACHES`, the operator that makes its output: ``"TensorScatter"`` if it is fed directly by the cache's input
            and by `position`, otherwise that operator with what is different, such as ``"Concat"``.
        products: names of the matrix products of two computed tensors, such as queries and keys.
    """

    writers: dict[str, str]
    products: tuple[str, ...] = ()

    @property
    def in_place(self) -> int:
        """Number of caches that are written in place."""
        return sum(writer == IN_PLACE for writer in self.writers.values())

    @property
    def others(self) -> list[str]:
        """The other writers, each once."""
        return sorted({writer for writer in self.writers.values() if writer != IN_PLACE})


def examined(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> GraphForm:
    """The form of a serialized model.

    Raises:
        BuildError: its inputs or outputs are not those of the lab, or it is not an ONNX model.
    """
    advice = "write it with GraphWriter.write"
    return isolation.examined(__name__, model, _parsed, "decoder.onnx", advice, launcher=launcher, time_limit_s=time_limit_s)


def _parsed(answer: bytes) -> GraphForm:
    def read(found: Any) -> GraphForm:
        writers = {name: str(found["writers"][name])[:200] for name in CACHES}
        return GraphForm(writers, tuple(str(name)[:200] for name in found["products"]))

    return read_hostile(answer, read, "its process sent an invalid answer")


def main() -> None:
    """Entry point of the child process."""
    transform(_examined)


def _examined(data: bytes) -> bytes:
    import onnx

    model = onnx.load_model_from_string(data)
    constants = {tensor.name for tensor in model.graph.initializer}
    _check("input", [info for info in model.graph.input if info.name not in constants], _INPUTS)
    _check("output", list(model.graph.output), _OUTPUTS)
    products = [node.name for node in model.graph.node if node.op_type in _PRODUCTS and not constants.intersection(node.input)]
    return json.dumps({"writers": _writers(model), "products": products[:_MOST_PRODUCTS]}).encode()


def _check(side: str, found: list[ValueInfoProto], wanted: _Expected) -> None:
    names = [info.name for info in found]
    if missing := [name for name in wanted if name not in names]:
        raise BuildError(
            f"the graph has no {side} {missing[0]!r}: it needs tokens, position and a past and present cache for each block"
        )
    if sorted(names) != sorted(wanted):
        other = next(name for name in names if name not in wanted or names.count(name) > 1)
        raise BuildError(f"the graph has the {side} {other[:60]!r}, which is not in the contract: remove it")
    for info in found:
        kind, shape = wanted[info.name]
        tensor = info.type.tensor_type
        has = tuple(one.dim_value if one.HasField("dim_value") else None for one in tensor.shape.dim)
        if tensor.elem_type != kind:
            raise BuildError(f"{info.name} is {_WORDS.get(tensor.elem_type, 'of another type')}, expected {_WORDS[kind]}")
        if has != shape:
            hint = f". {_GROWS}" if info.name.endswith(CACHES) and len(has) == 4 and has[2] is None else ""
            raise BuildError(f"{info.name} has the shape {_spell(has)}, expected {_spell(shape)}{hint}")


def _writers(model: ModelProto) -> dict[str, str]:
    makers = {name: node for node in model.graph.node for name in node.output}
    return {name: _writer(makers[f"present_{name}"], f"past_{name}") for name in CACHES}


def _writer(node: NodeProto, past: str) -> str:
    if node.op_type != IN_PLACE:
        return node.op_type[:40]
    attributes = {one.name: one for one in node.attribute}
    if node.input[0] != past:
        return f"{IN_PLACE} into another tensor than {past}"
    if len(node.input) < 3 or node.input[2] != "position":
        return f"{IN_PLACE} at another place than `position`"
    if "mode" in attributes and attributes["mode"].s != b"linear":
        return f"{IN_PLACE} in another mode than linear"
    return IN_PLACE


def _spell(shape: tuple[int | None, ...]) -> str:
    return " x ".join("N" if size is None else str(size) for size in shape) or "scalar"
