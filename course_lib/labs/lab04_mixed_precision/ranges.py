"""The largest magnitude at each node, compared with the largest number of FP16."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.benchmark.one_node import every_tensor

if TYPE_CHECKING:
    import onnx
    from matplotlib.figure import Figure

LARGEST = float(np.finfo(np.float16).max)  # 65 504
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)  # 6e-8
_SHOWN = 28  # bars


def written(model: onnx.ModelProto, tokens: np.ndarray) -> dict[str, float]:
    """The largest magnitude in each float32 tensor that a node of the model makes, by the tensor's name.

    Args:
        model: float32, in memory. It is not changed.
        tokens: one batch of its input, ``(N, S, 32)``.
    """
    made = every_tensor(model, {"tokens": tokens})
    return {name: float(np.abs(values).max()) for name, values in made.items() if values.dtype == np.float32}


def by_node(model: onnx.ModelProto, largest: Mapping[str, float]) -> dict[str, float]:
    """For each node, the largest magnitude in `largest` of the tensors that it reads and makes, without its weights."""
    found = {}
    for node in model.graph.node:
        seen = [largest[name] for name in (*node.input, *node.output) if name in largest]
        if seen:
            found[node.name] = max(seen)
    return found


def magnitudes(model: onnx.ModelProto, tokens: np.ndarray) -> dict[str, float]:
    """For each node of a float32 model, the largest magnitude that it reads or writes on one batch, in graph order."""
    return by_node(model, written(model, tokens))


def magnitudes_figure(largest: Mapping[str, float], nodes: Collection[str] | None = None) -> Figure:
    """Draw the nodes with the largest magnitudes as bars, in graph order, and the limit of FP16.

    Args:
        largest: as from `magnitudes`.
        nodes: draw only these.
    """
    chosen = {node: size for node, size in largest.items() if nodes is None or node in nodes}
    drawn = sorted(chosen, key=lambda node: -chosen[node])[:_SHOWN]
    shown = [node for node in chosen if node in drawn]
    figure = style.figure(7.5, 0.9 + 0.17 * len(shown))
    axes = figure.add_subplot()
    sizes = [chosen[node] for node in shown]
    axes.barh(range(len(shown)), sizes, color=[style.color(size > LARGEST) for size in sizes], height=0.7)
    axes.axvline(LARGEST, color="black", lw=1, ls="--")
    axes.annotate("65 504", (LARGEST, -1), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7)
    axes.set_yticks(range(len(shown)), shown, fontsize=7)
    axes.set_ylim(len(shown), -1.6)
    axes.set_xscale("log")
    axes.set_xlabel("largest magnitude that the node reads or writes (log)")
    beyond = sum(size > LARGEST for size in largest.values())
    figure.suptitle(f"{beyond} of {len(largest)} nodes handle numbers beyond FP16", fontsize=10, fontweight="bold")
    return figure
