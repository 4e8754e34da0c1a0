"""Lecture 13: the reason why `torch.export` rejects a module, and a picture of blocks."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.engines.backends.torch_tensorrt.blocks import Blocks

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


_PYTORCH, _TENSORRT = style.COLORS[1], style.COLORS[2]


def draw_partitions(partitions: Mapping[str, Blocks], title: str, *, source: str = "") -> Figure:
    """Draw one strip per graph, from the first operator to the last. The width of a piece is its number of operators.

    Args:
        partitions: by name, drawn from top to bottom.
        title: the takeaway.
        source: what divided the graphs; default: the release in the first of them.
    """
    source = source or f"Torch-TensorRT {next(iter(partitions.values())).release}"
    figure = style.figure(1.2 + 0.55 * len(partitions), width=style.NARROW)
    axes = figure.add_subplot()
    longest = max(len(block.operators) for one in partitions.values() for block in one.blocks)
    for row, one in enumerate(partitions.values()):
        left = 0
        for block in one.blocks:
            width, hue = len(block.operators), _TENSORRT if block.in_tensorrt else _PYTORCH
            axes.barh(row, width, left=left, height=0.55, color=hue, alpha=0.8, edgecolor="white", lw=1.5)
            inside = width > 0.08 * longest  # there is room for the number
            y, ink = (row, "white") if inside else (row - 0.42, "black")
            axes.text(left + width / 2, y, str(width), ha="center", va="center", color=ink, weight="bold")
            left += width
    for hue, name in ((_TENSORRT, "TensorRT"), (_PYTORCH, "PyTorch")):
        axes.barh(0, 0, color=hue, alpha=0.8, label=name)
    counts = [f"{one.engines} engine{'' if one.engines == 1 else 's'}, {100 * one.share:.0f} %" for one in partitions.values()]
    axes.set_yticks(range(len(partitions)), [f"{name}\n{count}" for name, count in zip(partitions, counts, strict=True)])
    axes.set(xlabel=f"operators in order ({source})", ylim=(len(partitions) - 0.4, -0.6))
    style.name_colors(axes)
    axes.set_title(title)
    return figure
