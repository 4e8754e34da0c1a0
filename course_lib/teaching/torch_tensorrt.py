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


_HUES = (style.COLORS[1], style.COLORS[0])  # PyTorch, TensorRT


def draw_partitions(partitions: Mapping[str, Blocks], title: str) -> style.Figure:
    """Draw one strip per graph, from the first operator to the last. A piece is as wide as its operators, or as their number needs.

    Args:
        partitions: by name, drawn from top to bottom.
        title: the takeaway.
    """
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Patch

    release = next(iter(partitions.values())).release
    figure, axes = style.subplots(1.2 + 0.55 * len(partitions))
    longest = max(len(block.operators) for one in partitions.values() for block in one.blocks)
    for row, one in enumerate(partitions.values()):
        left = 0.0
        for block in one.blocks:
            count, hue = len(block.operators), _HUES[block.in_tensorrt]
            width = max(count, 0.06 * longest)  # the number has to fit
            axes.barh(row, width, left=left, height=0.55, facecolor=to_rgba(hue, 0.22), edgecolor=hue)
            axes.text(left + width / 2, row, str(count), ha="center", va="center", weight="bold")
            left += width + 0.01 * longest
    handles = [
        Patch(facecolor=to_rgba(hue, 0.22), edgecolor=hue, label=name)
        for hue, name in zip(_HUES, ("PyTorch", "TensorRT"), strict=True)
    ]
    counts = [f"{one.engines} engine{'' if one.engines == 1 else 's'}, {100 * one.share:.0f} %" for one in partitions.values()]
    style.name_rows(axes, [f"{name}\n{count}" for name, count in zip(partitions, counts, strict=True)])
    axes.set(xlabel=f"operators in order, % in TensorRT\n(Torch-TensorRT {release})", xticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    style.name_colors(axes, handles)
    axes.set_title(title)
    return figure
