"""Torch-TensorRT 2.2, which compiles for TensorRT 8.6: how it differs from the releases for TensorRT 10 and 11.

Seen on an H200 (`course_lib/records/torch_tensorrt_h200.json`): it ignores ``require_full_compilation``, so operators stay in PyTorch
without an error; it returns an exported program unless asked for a graph module, and one output in a tuple; the engine's types come
from ``enabled_precisions``.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.errors import BuildError

if TYPE_CHECKING:
    import torch


def compile_graph(
    torch_tensorrt: Any, module: torch.nn.Module, specs: Sequence[Any], dtype: torch.dtype, options: Mapping[str, Any]
) -> torch.fx.GraphModule:
    """A graph module whose engines compute in `dtype`. A single output is a tensor, as in later releases."""
    compiled = torch_tensorrt.compile(
        module, ir="dynamo", inputs=list(specs), enabled_precisions={dtype}, output_format="fx", **options
    )
    (output,) = (node for node in compiled.graph.nodes if node.op == "output")
    if isinstance(output.args[0], (tuple, list)) and len(output.args[0]) == 1:
        output.args = (output.args[0][0],)
        compiled.recompile()
    graph: torch.fx.GraphModule = compiled
    return graph


def left_in_pytorch(compiled: torch.fx.GraphModule) -> list[str]:
    """The operators outside the engines, in their order."""
    import torch

    found: list[str] = []
    for node in compiled.graph.nodes:
        inside = compiled.get_submodule(str(node.target)) if node.op == "call_module" else None
        nodes = inside.graph.nodes if isinstance(inside, torch.fx.GraphModule) else [node]
        found += [str(one.target) for one in nodes if one.op == "call_function" and one.target is not operator.getitem]
    return found


def require_none_left(compiled: torch.fx.GraphModule) -> None:
    """Do what ``require_full_compilation=True`` does in later releases.

    Raises:
        BuildError: an operator would run in PyTorch. The message names the first ones.
    """
    left = left_in_pytorch(compiled)
    if left:
        names = ", ".join(dict.fromkeys(left))[:150]
        raise BuildError(
            f"nodes that would run in PyTorch: {len(left)} ({names}). Write them with other operators, or pass "
            "require_full_compilation=False"
        )
