"""The magnitudes in each tensor of a model, compared with the range of a number format."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib._util.model_file import open_model
from course_lib.benchmark.one_node import Feeds, every_tensor
from course_lib.errors import CourseError
from course_lib.precision.formats import Format, format_named

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class TensorRange:
    """The magnitudes in one float32 tensor; zeros do not count for the first three.

    Attributes:
        node: the node that makes the tensor; for an input of the model, the tensor's name.
        smallest, median, largest: magnitudes; 0 if everything is zero.
        beyond: the share of values, 0 to 1, that the format cannot hold.
        lost: the share of values that the format rounds to zero.
    """

    node: str
    smallest: float
    median: float
    largest: float
    beyond: float
    lost: float


@dataclass(frozen=True)
class ValueRanges:
    """The tensors of a model in the graph's order, against one number format."""

    format: Format
    rows: tuple[TensorRange, ...]

    @property
    def overflowing(self) -> tuple[str, ...]:
        """Nodes that make a number beyond the format."""
        return tuple(row.node for row in self.rows if row.beyond)

    def plot(self, nodes: Collection[str] | None = None) -> style.Figure:
        """One line per tensor, from its smallest to its largest magnitude with a dot at the median; the format's range is shaded.

        Args:
            nodes: draw only what these make.
        """
        rows = [row for row in self.rows if row.largest and (nodes is None or row.node in nodes)]
        figure, axes = style.subplots(1.2 + 0.22 * len(rows))
        axes.axvspan(self.format.smallest_normal, self.format.largest, color=style.color(2), alpha=0.15, lw=0)
        axes.axvspan(self.format.smallest, self.format.smallest_normal, color=style.color(4), alpha=0.2, lw=0)
        for place, row in enumerate(rows):
            hue = style.color(1 if row.beyond else 0)
            axes.plot([row.smallest, row.largest], [place, place], color=hue, lw=3, solid_capstyle="butt")
            axes.plot([row.median], [place], "o", color=hue, ms=5)
            if row.beyond:
                note = f"{100 * row.beyond:.3g} % overflow"
                axes.annotate(note, (row.largest, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [row.node[-26:] for row in rows], fontsize=8)
        axes.set_xscale("log")
        axes.margins(x=0.16)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(f"magnitude (log); green: normal numbers of {self.format.name}, yellow: subnormal ones")
        title = f"{len(self.overflowing)} of {len(self.rows)} tensors hold numbers beyond {self.format.name}"
        figure.suptitle(title)
        return figure


def value_ranges(model: onnx.ModelProto | str | os.PathLike[str], feeds: Feeds, name: str = "FP16") -> ValueRanges:
    """Run a float32 model once and record every float32 tensor: its inputs and the outputs of each node.

    Args:
        model: a file or a model in memory. It is not changed.
        feeds: one batch of real inputs by name. The ranges are valid only for similar data.
        name: name of the number format, a key of `course_lib.precision.formats.FORMATS`.

    Raises:
        ValueError: an unknown format.
        CourseError: float32 arithmetic itself gives NaN or infinity somewhere.
        EngineError: ONNX Runtime rejects the model or the batch.
    """
    shown = format_named(name)
    rows = (_row(node, values, shown) for node, values in _tensors(open_model(model), feeds) if values.dtype == np.float32)
    return ValueRanges(shown, tuple(rows))


def _tensors(model: onnx.ModelProto, feeds: Feeds) -> Iterator[tuple[str, np.ndarray]]:
    yield from feeds.items()
    makers = {name: node.name or name for node in model.graph.node for name in node.output}
    yield from ((makers[name], values) for name, values in every_tensor(model, feeds).items())


def _row(node: str, values: np.ndarray, shown: Format) -> TensorRange:
    if not np.isfinite(values).all():
        raise CourseError(f"the output of {node!r} is not finite even in float32: check the data and the model before it")
    rounded, sizes = shown.round(values), np.abs(values[values != 0]).astype(np.float64)
    if not sizes.size:
        return TensorRange(node, 0.0, 0.0, 0.0, 0.0, 0.0)
    beyond = ~np.isfinite(rounded) | (np.abs(rounded) > shown.largest)
    lost = (rounded == 0) & (values != 0)
    return TensorRange(
        node, float(sizes.min()), float(np.median(sizes)), float(sizes.max()), float(beyond.mean()), float(lost.mean())
    )
