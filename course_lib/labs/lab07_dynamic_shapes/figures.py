"""Lab 07's figures: arrivals and shapes of the batches, the latency of each shape, and the shapes that profiles pad to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.labs.lab07_dynamic_shapes.given import LARGEST, Box, Traffic

if TYPE_CHECKING:
    from matplotlib.collections import QuadMesh


def traffic(day: Traffic) -> style.Figure:
    """Texts per second over time, and the shapes of all batches."""
    figure = style.figure(5.2)
    figure.suptitle("Traffic comes in bursts, and a burst makes batches both larger and longer")
    above, below = figure.subplots(2, 1)
    texts = np.bincount(day.sent_s.astype(int), weights=day.batch)
    above.plot(np.arange(len(texts)), texts, color=style.color(0), linewidth=0.8)
    above.set(xlabel="time (s)", ylabel="texts per second")
    _shapes(below, day.counts())
    return figure


def latency(latency_ms: np.ndarray) -> style.Figure:
    """Latency of every shape, ``(16, 128)`` in milliseconds, with lines of equal latency."""
    figure, axes = style.subplots(3.4)
    lengths, batches = np.arange(1, LARGEST[1] + 1), np.arange(1, LARGEST[0] + 1)
    image = axes.pcolormesh(lengths, batches, latency_ms, cmap="viridis", shading="nearest")
    figure.colorbar(image, ax=axes, label="latency (ms)")
    lines = axes.contour(
        lengths, batches, latency_ms, levels=latency_ms.max() * np.array([0.1, 0.25, 0.5, 0.75]), colors="white"
    )
    axes.clabel(lines, fmt="%.1f ms", fontsize=8)
    axes.set(xlabel="tokens of the longest text", ylabel="texts in the batch")
    axes.set_title("Padding to the largest shape is expensive: latency grows with the tokens")
    return figure


def routed(counts: np.ndarray, boxes: Sequence[Box], takeaway: str) -> style.Figure:
    """Traffic, as the number of batches of each shape, and the boxes that they are padded to, in the order of the profiles."""
    from matplotlib.patches import Rectangle

    figure, axes = style.subplots(3.8)
    _shapes(axes, counts)
    axes.set_title(takeaway)
    for index, (batch, length) in enumerate(boxes):
        color = style.color(index + 1)
        axes.add_patch(Rectangle((0.5, 0.5), length, batch, fill=False, edgecolor=color, linewidth=2.5))
        axes.plot(length, batch, "o", color=color, label=f"profile {index}: runs {batch} x {length}")
    axes.set(xlim=(0, LARGEST[1] + 4), ylim=(0, LARGEST[0] + 1))
    style.name_colors(axes)
    return figure


def _shapes(axes: style.Axes, counts: np.ndarray) -> QuadMesh:
    from matplotlib.colors import LogNorm

    shown = np.ma.masked_equal(counts, 0)
    lengths, batches = np.arange(1, LARGEST[1] + 1), np.arange(1, LARGEST[0] + 1)
    image = axes.pcolormesh(lengths, batches, shown, cmap="Blues", norm=LogNorm(), shading="nearest")
    axes.figure.colorbar(image, ax=axes, label="batches")
    axes.set(xlabel="tokens of the longest text", ylabel="texts in the batch")
    return image
