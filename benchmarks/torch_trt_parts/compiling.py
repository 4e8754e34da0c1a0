"""One call of `torch_tensorrt.compile`, and what its result consists of."""

from __future__ import annotations

import contextlib
import json
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

_OPERATORS = "converted operators"


def compiled(module: torch.nn.Module, inputs: Sequence[Any], **options: Any) -> Any:
    """``torch_tensorrt.compile(ir="dynamo")`` with a graph module as result, which can be looked into."""
    import torch_tensorrt

    with _watched() as operators:
        result = torch_tensorrt.compile(module, ir="dynamo", inputs=list(inputs), **{"output_format": "fx", **options})
    if isinstance(result, torch.fx.GraphModule):
        result.meta[_OPERATORS] = operators
    return result


@contextlib.contextmanager
def _watched() -> Iterator[dict[str, list[str]]]:
    """The operators of each block that is converted, by its name: an engine no longer knows them."""
    from torch_tensorrt.dynamo import _compiler

    convert = _compiler.convert_module
    operators: dict[str, list[str]] = {}

    def watching(part: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        operators[kwargs.get("name", "")] = _operators(part)
        return convert(part, *args, **kwargs)

    _compiler.convert_module = watching
    try:
        yield operators
    finally:
        _compiler.convert_module = convert


def quickly(module: torch.nn.Module, inputs: Sequence[Any], **options: Any) -> Any:
    """`compiled` where no time is measured: TensorRT tries few kernels, and blocks of every size are built."""
    return compiled(module, inputs, **{"optimization_level": 0, "min_block_size": 1, **options})


def blocks(result: Any) -> list[dict[str, Any]]:
    """The parts of a compiled graph module in the order of execution: where each runs, and its operators.

    Operators of the outer graph itself, which is all there is if no block was built, are in a block named ``""``.
    """
    found: list[dict[str, Any]] = []
    for node in result.graph.nodes:
        if node.op == "call_module":
            part = result.get_submodule(str(node.target))
            known = result.meta.get(_OPERATORS, {}).get(str(node.target), [])
            inside = _operators(part) if isinstance(part, torch.fx.GraphModule) else known
            runs = "TensorRT" if type(part).__name__.endswith("TensorRTModule") else "PyTorch"
            found.append({"name": str(node.target), "kind": type(part).__name__, "runs_in": runs, "operators": inside})
        elif node.op == "call_function" and node.target is not operator.getitem:  # which takes apart what a block returned
            if not found or found[-1]["name"]:
                found.append({"name": "", "kind": "GraphModule", "runs_in": "PyTorch", "operators": []})
            found[-1]["operators"].append(str(node.target))
    return found


def _operators(part: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in part.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]


def counted(result: Any) -> dict[str, Any]:
    """How many engines a compiled graph module has, and its blocks."""
    parts = blocks(result)
    return {"engines": sum(part["runs_in"] == "TensorRT" for part in parts), "blocks": parts}


def layers_of(description: str) -> dict[str, Any]:
    """From an inspector's JSON: the names of all layers, and the first two with whatever else it says of them."""
    layers = json.loads(description, strict=False)["Layers"]  # 8.6 writes control characters into strings
    names = [layer["Name"] if isinstance(layer, dict) else str(layer) for layer in layers]
    return {"layers": names, "first_layers": [layer for layer in layers if isinstance(layer, dict)][:2]}
