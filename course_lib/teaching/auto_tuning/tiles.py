"""Tiles and waves: a model of how well a tiled matrix product fits a GPU. It counts and does not measure.

A kernel cuts its ``m x n`` result into tiles, one for each block of threads. A GPU works on one tile per multiprocessor at
a time (one *wave*). Both divisions are rounded up, and the part that is rounded up is lost.
Source: NVIDIA, Matrix Multiplication Background User's Guide, "Dimension Quantization Effects".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib import style


@dataclass(frozen=True)
class Tiling:
    """An ``m x n`` result in tiles, on a GPU whose multiprocessors each compute one tile at a time.

    Attributes:
        products_per_load: number of products that a multiprocessor computes while it loads one number (an assumption).
    """

    m: int
    n: int
    tile: tuple[int, int]
    multiprocessors: int
    products_per_load: int = 64

    @property
    def tiles(self) -> int:
        """Number of tiles that cover the result."""
        return math.ceil(self.m / self.tile[0]) * math.ceil(self.n / self.tile[1])

    @property
    def waves(self) -> int:
        """Number of rounds until every tile is computed."""
        return math.ceil(self.tiles / self.multiprocessors)

    @property
    def useful(self) -> float:
        """The share of the computed numbers that belong to the result; the others are padding."""
        return self.m * self.n / (self.tiles * math.prod(self.tile))

    @property
    def busy(self) -> float:
        """The share of the multiprocessors' time in which they have a tile."""
        return self.tiles / (self.waves * self.multiprocessors)

    @property
    def cost(self) -> int:
        """Time of one step in depth, in products: every wave lasts as long as a tile takes to multiply or to load."""
        rows, columns = self.tile
        return self.waves * max(rows * columns, (rows + columns) * self.products_per_load)


def padding_figure(sizes: Sequence[int], steps: Sequence[int], label: str) -> style.Figure:
    """The share of multiplications that are not padding, over a size that is rounded up to a multiple of each step."""
    figure, axes = style.subplots(3.0)
    for index, step in enumerate(steps):
        share = [100 * size / (math.ceil(size / step) * step) for size in sizes]
        dashes = "--" if step == max(steps) else "-"  # shows the line of a smaller tile below it
        axes.plot(sizes, share, dashes, color=style.color(index), label=f"tile of {step}", lw=1.5)
    worst = max(steps)
    half = 50 * (worst + 1) / worst
    axes.annotate(f"at {worst + 1}: {half:.0f} %", (worst + 1, half), (0, -12), textcoords="offset points", ha="center")
    axes.set(xlabel=f"{label} (a model)", ylabel="useful multiplications (%)", ylim=(0, 103))
    style.name_lines(axes)
    axes.set_title("One channel too many fills a whole new tile")
    return figure


def wave_figure(tilings: Mapping[str, Sequence[Tiling]], batches: Sequence[int]) -> style.Figure:
    """The modeled time over the batch, one staircase for each way of tiling.

    Args:
        tilings: for each name one tiling a batch size.
        batches: on the horizontal axis.
    """
    figure, axes = style.subplots(3.2)
    scale = min(tiling.cost for series in tilings.values() for tiling in series)
    for index, (name, series) in enumerate(tilings.items()):
        times = [tiling.cost / scale for tiling in series]
        axes.step(batches, times, where="mid", color=style.color(index), label=name, lw=1.5)
    axes.set(xlabel="batch size", ylabel="modeled time (cheapest = 1)")
    axes.set_ylim(bottom=0)
    style.name_lines(axes)
    axes.set_title("Time grows in steps, and the best tile changes (a model)")
    return figure
