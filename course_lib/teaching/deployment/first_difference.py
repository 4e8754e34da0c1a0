"""Where two versions of a network diverge: every tensor inside an ONNX model compared with PyTorch's tensor at the same place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib._util.model_file import open_model
from course_lib.benchmark.accuracy import relative_error
from course_lib.benchmark.one_node import Feeds, every_tensor
from course_lib.errors import CourseError

if TYPE_CHECKING:
    import onnx
    import torch


@dataclass(frozen=True)
class Place:
    """A tensor that exists in the ONNX graph and in PyTorch.

    Attributes:
        node: the ONNX node that makes it.
        module: the PyTorch module that makes it, by its name in ``named_modules``.
        error: norm of the difference divided by the norm of PyTorch's tensor, see `accuracy.relative_error`.
    """

    node: str
    module: str
    error: float


@dataclass(frozen=True)
class Places:
    """The places in the graph's order."""

    rows: tuple[Place, ...]

    def first_beyond(self, error: float) -> Place | None:
        """The first place whose error is larger, where to look for the cause; None if all agree."""
        return next((row for row in self.rows if not row.error <= error), None)

    def plot(self, limit: float, title: str) -> style.Figure:
        """The error at each place on a log scale, those beyond the limit in another color."""
        figure, axes = style.subplots(1.0 + 0.24 * len(self.rows))
        floor = 1e-8
        for index, row in enumerate(self.rows):
            axes.plot(max(row.error, floor), index, "o", color=style.color(1 if row.error > limit else 0))
        axes.axvline(limit, color="#777777", lw=1, ls="--")
        axes.annotate(f"limit {style.power(limit)}", (limit, 1), (0, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
                      ha="center", color="#555555")  # fmt: skip
        style.name_rows(axes, [row.node for row in self.rows])
        axes.set(xscale="log", xlabel="relative error against PyTorch (log)")
        axes.grid(axis="y", color="#eeeeee")
        figure.suptitle(title)
        return figure


def tensors(model: onnx.ModelProto | str | os.PathLike[str], feeds: Feeds) -> dict[str, np.ndarray]:
    """The output of every node of a model by the node's name, in graph order; the first one of several outputs.

    Raises:
        EngineError: ONNX Runtime rejects the model or the feeds.
    """
    opened = open_model(model)
    made = every_tensor(opened, feeds)
    return {node.name or node.output[0]: made[node.output[0]] for node in opened.graph.node}


def module_outputs(module: torch.nn.Module, *inputs: torch.Tensor) -> dict[str, np.ndarray]:
    """The result of each submodule in one forward pass, by name. Only submodules that return one tensor and ran once are included."""
    import torch

    seen: dict[str, list[np.ndarray]] = {}

    def note(name: str) -> object:
        def hook(_module: torch.nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor):
                seen.setdefault(name, []).append(output.detach().cpu().numpy().copy())  # a copy: ReLU may work in place

        return hook

    hooks = [part.register_forward_hook(note(name)) for name, part in module.named_modules() if name]
    try:
        with torch.inference_mode():
            module(*inputs)
    finally:
        for one in hooks:
            one.remove()
    return {name: values[0] for name, values in seen.items() if len(values) == 1}


def against_torch(inside: Mapping[str, np.ndarray], module: Mapping[str, np.ndarray]) -> Places:
    """Pair the nodes of an exported graph with the modules that they come from.

    A node is named after its module, ``/block1/conv1+norm1/Conv``. The last node of a module makes the module's result. Of fused
    parts, ``conv1+norm1``, the last one counts.

    Args:
        inside: result of `tensors`.
        module: result of `module_outputs`.

    Raises:
        CourseError: no node has the name of a module. The graph is not an export of this module, or has no names.
    """
    last = {_module_of(node): node for node in inside}
    nodes = {node: place for place, node in last.items() if place in module and module[place].shape == inside[node].shape}
    if not nodes:
        raise CourseError("no node of the graph is named after a part of the module: compare with the export of this module")
    return Places(
        tuple(
            Place(node, nodes[node], relative_error(module[nodes[node]], values))
            for node, values in inside.items()
            if node in nodes
        )
    )


def _module_of(node: str) -> str:
    *scope, _ = node.strip("/").split("/")
    return ".".join(part.rpartition("+")[2] for part in scope)
