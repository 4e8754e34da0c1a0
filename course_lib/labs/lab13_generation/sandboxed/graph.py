"""Reads a submission's graph in its own process: inputs and outputs, the operator that writes each cache, and the graph in FP16."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError
from course_lib.labs.framework.onnx_model import plain_graph, transform, transformed
from course_lib.labs.framework.runner import read_hostile
from course_lib.labs.lab13_generation.given import CACHE_SHAPE, CACHES, LENGTH, VOCABULARY, in_half

if TYPE_CHECKING:
    from onnx import NodeProto, ValueInfoProto

IN_PLACE = "TensorScatter"
_FLOAT, _INT64 = 1, 7  # TensorProto's numbers
_WORDS = {_FLOAT: "float32", _INT64: "int64", 10: "float16"}
_Expected = Mapping[str, tuple[int, tuple[int | None, ...]]]
_INPUTS: _Expected = {"tokens": (_INT64, (1, None)), "position": (_INT64, (1,))} | {
    f"past_{name}": (_FLOAT, CACHE_SHAPE) for name in CACHES
}
_OUTPUTS: _Expected = {"logits": (_FLOAT, (1, 1, VOCABULARY))} | {f"present_{name}": (_FLOAT, CACHE_SHAPE) for name in CACHES}


@dataclass(frozen=True)
class Graph:
    """A submission's graph.

    Attributes:
        writers: for each of `CACHES`, the operator that makes its output.
        model: serialized, float32.
        half: the same in FP16; empty if that failed.
        half_error: why it failed.
    """

    writers: Mapping[str, str]
    model: bytes
    half: bytes
    half_error: str = ""

    @property
    def others(self) -> list[str]:
        """Operators that write a cache, and not in place, each once."""
        return sorted({writer for writer in self.writers.values() if writer != IN_PLACE})


def read(model: bytes, *, launcher: Launcher | None = None) -> Graph:
    """A submission's graph, read in an isolated process.

    Raises:
        BuildError: its inputs or outputs are not those of the lab, or it is not one plain ONNX graph.
    """
    return parsed(transformed(__name__, model, "decoder.onnx", launcher=launcher))


def parsed(answer: bytes) -> Graph:
    """What `rewritten` wrote."""
    header, _, models = answer.partition(b"\n")

    def graph(found: Mapping[str, object]) -> Graph:
        writers, size = found["writers"], found["size"]
        assert isinstance(writers, dict) and isinstance(size, int)
        named = {name: str(writers[name])[:60] for name in CACHES}
        return Graph(named, models[:size], models[size:], str(found["half_error"])[:400])

    return read_hostile(header, graph, "its process sent an invalid answer")


def main() -> None:
    """Entry point of the child process."""
    transform(rewritten)


def rewritten(data: bytes) -> bytes:
    """A line of JSON, the model, and the model in FP16."""
    import onnx

    model = onnx.load_model_from_string(data)
    constants = {tensor.name for tensor in model.graph.initializer}
    _check("input", [info for info in model.graph.input if info.name not in constants], _INPUTS)
    _check("output", list(model.graph.output), _OUTPUTS)
    plain = plain_graph(data)
    makers = {name: node for node in model.graph.node for name in node.output}
    header = {"writers": {name: _writer(makers[f"present_{name}"], f"past_{name}") for name in CACHES}, "size": len(plain)}
    half, header["half_error"] = b"", ""
    try:
        half = in_half(onnx.load_model_from_string(plain)).SerializeToString()
    except BuildError as error:
        header["half_error"] = str(error)
    return json.dumps(header).encode() + b"\n" + plain + half


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
        has = tuple(size.dim_value if size.HasField("dim_value") else None for size in tensor.shape.dim)
        if tensor.elem_type != kind:
            raise BuildError(f"{info.name} is {_WORDS.get(tensor.elem_type, 'of another type')}, expected {_WORDS[kind]}")
        if has != shape:
            grows = info.name.endswith(CACHES) and len(has) == 4 and has[2] is None
            hint = f". A cache that grows is copied in each step: give it all {LENGTH} slots from the start" if grows else ""
            raise BuildError(f"{info.name} has the shape {_spell(has)}, expected {_spell(shape)}{hint}")


def _writer(node: NodeProto, past: str) -> str:
    if node.op_type == IN_PLACE and node.input[0] != past:
        return f"{IN_PLACE} into another tensor than {past}"
    return node.op_type


def _spell(shape: tuple[int | None, ...]) -> str:
    return " x ".join("N" if size is None else str(size) for size in shape) or "scalar"
