"""Reads a submission's graph in its own process: inputs and outputs, the operator that writes each cache, and the graph in FP16."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from course_lib.errors import BuildError
from course_lib.labs.framework.onnx_model import plain_graph
from course_lib.labs.lab13_generation.given import CACHE_SHAPE, CACHES, LENGTH, VOCABULARY, in_half

if TYPE_CHECKING:
    from onnx import ValueInfoProto

IN_PLACE = "TensorScatter"
_CACHE = "float " + " x ".join(map(str, CACHE_SHAPE))
_EXPECTED = {  # as `_described`
    "input": {"tokens": "int64 1 x N", "position": "int64 1", **{f"past_{name}": _CACHE for name in CACHES}},
    "output": {"logits": f"float 1 x 1 x {VOCABULARY}", **{f"present_{name}": _CACHE for name in CACHES}},
}


def checked(data: bytes) -> bytes:
    """The model as one plain graph."""
    import onnx

    graph = onnx.load_model_from_string(data).graph
    constants = {tensor.name for tensor in graph.initializer}
    _check("input", {info.name: _described(info) for info in graph.input if info.name not in constants})
    _check("output", {info.name: _described(info) for info in graph.output})
    return plain_graph(data)


def halved(data: bytes) -> bytes:
    """A line of JSON with the operator that writes each cache, and the model in FP16."""
    import onnx

    model = onnx.load_model_from_string(data)
    makers = {name: node for node in model.graph.node for name in node.output}
    writers = []
    for name in CACHES:
        node = makers[f"present_{name}"]
        elsewhere = node.op_type == IN_PLACE and node.input[0] != f"past_{name}"
        writers.append(f"{IN_PLACE} into another tensor" if elsewhere else node.op_type)
    return json.dumps(writers).encode() + b"\n" + in_half(model).SerializeToString()


def _check(side: str, found: Mapping[str, str]) -> None:
    expected = _EXPECTED[side]
    if missing := [name for name in expected if name not in found]:
        needs = "it needs tokens, position and a past and present cache for each block"
        raise BuildError(f"the graph has no {side} {missing[0]!r}: {needs}")
    if others := found.keys() - expected:
        raise BuildError(f"the graph has the {side} {min(others)[:60]!r}, which is not in the contract: remove it")
    for name, wanted in expected.items():
        if found[name] != wanted:
            grows = f". A cache that grows is copied in each step: give it all {LENGTH} slots from the start"
            hint = grows if wanted == _CACHE and "N" in found[name] else ""
            raise BuildError(f"{name} is {found[name]}, expected {wanted}{hint}")


def _described(info: ValueInfoProto) -> str:
    from onnx import TensorProto

    tensor = info.type.tensor_type
    sizes = (str(size.dim_value) if size.HasField("dim_value") else "N" for size in tensor.shape.dim)
    return f"{TensorProto.DataType.Name(tensor.elem_type).lower()} {' x '.join(sizes) or 'scalar'}"
