"""Lecture 13: the reason why `torch.export` rejects a module, the effect of a keyword in each version, and the partitions of a graph.

The rules of `partition` are those of Torch-TensorRT's default partitioner, which is PyTorch's own splitter: operators with a converter
form blocks as long as their inputs are available, and blocks that are too small go back to PyTorch. The model does not include
converters that check a node's arguments first, or Torch-TensorRT's own rewriting of the graph.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from course_lib import style
from course_lib.engines.backends.torch_tensorrt.converters import converted
from course_lib.engines.backends.torch_tensorrt.keywords import of_version, table

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure


_LOGS = ("torch.fx.experimental.symbolic_shapes", "torch._export", "torch.export")


def export_rejection(module: torch.nn.Module, *inputs: torch.Tensor, dynamic_shapes: Any = None, lines: int = 2) -> str:
    """The message of `torch.export` for a module that it cannot export, with the kind of error first; empty if it can.

    PyTorch also prints and logs the graph up to the error. This output is suppressed here.

    Args:
        inputs: examples for ``forward``.
        dynamic_shapes: argument of `torch.export.export`.
        lines: number of lines of the message.
    """
    import torch

    loggers = [logging.getLogger(name) for name in _LOGS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with contextlib.redirect_stderr(io.StringIO()):
            torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # classes of several parts of PyTorch, without a common public base
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "\n".join([type(error).__name__, *said[:lines]])
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    return ""


Fate = Literal["read", "taken and ignored", "unknown"]
_SIGNS: dict[Fate, tuple[str, str, str]] = {
    "read": ("o", style.COLORS[2], "read"),
    "taken and ignored": ("X", style.COLORS[1], "a parameter, and ignored"),
    "unknown": ("X", style.COLORS[3], "unknown, taken by **kwargs"),
}


def fate(keyword: str, version: str) -> Fate:
    """The effect of a keyword in ``torch_tensorrt.compile`` of this version, ``"major.minor"``.

    Raises:
        ValueError: a version that is not in the table.
    """
    row = of_version(table(), version, "keywords")
    if keyword in row["ignored"]:
        return "taken and ignored"
    return "read" if keyword in row["compile"] else "unknown"


def draw_keywords(keywords: Sequence[str], title: str) -> Figure:
    """A row a keyword, a column a version.

    Args:
        keywords: keywords of ``torch_tensorrt.compile``.
        title: the takeaway.
    """
    versions = list(table())
    figure = style.figure(7.5, 1.3 + 0.3 * len(keywords))
    axes = figure.add_subplot()
    for kind, (marker, hue, text) in _SIGNS.items():
        cells = [
            (column, row)
            for row, word in enumerate(keywords)
            for column, version in enumerate(versions)
            if fate(word, version) == kind
        ]
        axes.plot(*(zip(*cells, strict=True) if cells else ((), ())), marker, ls="", ms=9, color=hue, label=text)
    axes.set_xticks(range(len(versions)), versions)
    axes.set_yticks(range(len(keywords)), keywords, family="monospace", fontsize=8)
    axes.set(xlabel="version of Torch-TensorRT", xlim=(-0.5, len(versions) - 0.5), ylim=(len(keywords) - 0.5, -0.5))
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    axes.set_title(title)
    return figure


_PYTORCH, _TENSORRT = style.COLORS[1], style.COLORS[2]


@dataclass(frozen=True)
class Block:
    """Operators that run consecutively in one place, ``"aten.relu.default"``, in order of execution."""

    in_tensorrt: bool
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Partition:
    """The blocks in the order of the run.

    Attributes:
        unsupported: operators without a converter, each once.
    """

    blocks: tuple[Block, ...]
    unsupported: tuple[str, ...]

    @property
    def engines(self) -> int:
        """Number of blocks that run in TensorRT."""
        return sum(block.in_tensorrt for block in self.blocks)

    @property
    def share(self) -> float:
        """Share of the operators that run in TensorRT, from 0 to 1."""
        sizes = [(len(block.operators), block.in_tensorrt) for block in self.blocks]
        return sum(size for size, inside in sizes if inside) / max(1, sum(size for size, _ in sizes))


def lowered(exported: torch.export.ExportedProgram, version: str) -> torch.fx.Graph:
    """The exported graph with operators decomposed if PyTorch can decompose them and this version has no converter for them.

    Raises:
        ValueError: a version of Torch-TensorRT whose converters were not read.
    """
    import torch

    table = torch.export.default_decompositions()
    for operator in [operator for operator in table if converted(str(operator), version)]:
        table.pop(operator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's copy of its own graph warns about its own class
        return exported.run_decompositions(table).graph


def partition(
    exported: torch.export.ExportedProgram,
    *,
    version: str = "2.14",
    min_block_size: int = 5,
    torch_executed_ops: Collection[str] = (),
) -> Partition:
    """Divide a graph.

    Args:
        version: version of Torch-TensorRT, ``"major.minor"``.
        min_block_size: smaller blocks go back to PyTorch.
        torch_executed_ops: operators that stay in PyTorch, as ``"torch.ops.aten.mul.Tensor"``.

    Raises:
        ValueError: a version whose converters were not read.
    """
    kept = {name.removeprefix("torch.ops.") for name in torch_executed_ops}
    nodes = [node for node in lowered(exported, version).nodes if node.op == "call_function"]
    names = {node: _name(node.target) for node in nodes}
    supported = {node: converted(name, version) and name not in kept for node, name in names.items()}
    runs = _gather(nodes, supported)
    large = ((inside and len(run) >= min_block_size, run) for inside, run in runs)
    merged = groupby(large, key=lambda entry: entry[0])
    blocks = (Block(inside, tuple(names[node] for _, run in group for node in run)) for inside, group in merged)
    lacking = dict.fromkeys(name for node, name in names.items() if not converted(name, version))
    return Partition(tuple(blocks), tuple(lacking))


def _gather(nodes: list[torch.fx.Node], supported: Mapping[torch.fx.Node, bool]) -> list[tuple[bool, list[torch.fx.Node]]]:
    """Runs of one kind: all operators of this kind with available inputs, then the same for the other kind, until none is left."""
    waiting = list(nodes)
    done: set[torch.fx.Node] = set()
    ready = [node for node in nodes if not any(need in supported for need in node.all_input_nodes)]
    inside = all(supported[node] for node in ready)
    runs: list[tuple[bool, list[torch.fx.Node]]] = []
    while waiting:
        run: list[torch.fx.Node] = []
        for node in list(waiting):
            needs = {need for need in node.all_input_nodes if need in supported}
            if supported[node] == inside and needs <= done:
                run.append(node)
                done.add(node)
                waiting.remove(node)
        if run:
            runs.append((inside, run))
        inside = not inside
    return runs


def _name(target: Any) -> str:
    text = str(target)
    return f"operator.{target.__name__}" if text.startswith("<") else text


def draw_partitions(partitions: Mapping[str, Partition], title: str, *, source: str = "a model of the partitioner") -> Figure:
    """Draw one strip per graph, from the first operator to the last. The width of a piece is its number of operators.

    Args:
        partitions: by name, drawn from top to bottom.
        title: the takeaway.
        source: what divided the graphs.
    """
    figure = style.figure(8.0, 1.2 + 0.55 * len(partitions))
    axes = figure.add_subplot()
    for row, one in enumerate(partitions.values()):
        left = 0
        for block in one.blocks:
            width, hue = len(block.operators), _TENSORRT if block.in_tensorrt else _PYTORCH
            axes.barh(row, width, left=left, height=0.55, color=hue, alpha=0.8, edgecolor="white", lw=1.5)
            axes.text(left + width / 2, row, str(width), ha="center", va="center", fontsize=7.5, color="white", weight="bold")
            left += width
        engines = f"{one.engines} engine{'' if one.engines == 1 else 's'}, {100 * one.share:.0f} %"
        axes.annotate(engines, (left, row), (5, 0), textcoords="offset points", va="center", fontsize=8)
    for hue, name in ((_TENSORRT, "TensorRT"), (_PYTORCH, "PyTorch")):
        axes.barh(0, 0, color=hue, alpha=0.8, label=name)
    axes.set_yticks(range(len(partitions)), list(partitions))
    axes.set(xlabel=f"operators, in the order of the run ({source})", ylim=(len(partitions) - 0.4, -0.6))
    axes.margins(x=0.2)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    axes.set_title(title)
    return figure
