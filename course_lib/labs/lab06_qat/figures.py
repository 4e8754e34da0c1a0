"""Lab 06's figures: channels against the step of their tensor, and accuracies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def channels_and_step(largest: np.ndarray, step: float, takeaway: str) -> Figure:
    """Draw the largest magnitude of each channel of a tensor, and the one step that all of them share in INT8.

    Args:
        largest: ``(channels,)``.
        step: of the whole tensor.
        takeaway: the title.
    """
    figure = style.figure(3.0)
    axes = figure.subplots()
    axes.bar(np.arange(len(largest)), np.sort(largest), color=style.color(0), label="largest magnitude of a channel")
    axes.axhline(step, color=style.color(1), lw=1.5, label="step of the tensor")
    axes.set_yscale("log")
    axes.set(xlabel="channel, sorted", ylabel="magnitude (log)", title=takeaway)
    style.name_colors(axes)
    return figure


def accuracies(found: Mapping[str, float], takeaway: str) -> Figure:
    """Draw accuracies as bars.

    Args:
        found: accuracy from 0 to 1 by name.
        takeaway: the title.
    """
    figure = style.figure(0.8 + 0.3 * len(found))
    axes = figure.add_subplot(title=takeaway, xlabel="accuracy (%)", xlim=(0, 112))
    axes.bar_label(
        axes.barh(list(found), [100 * value for value in found.values()], 0.7, color=style.color(0)), fmt="%.1f", padding=3
    )
    axes.invert_yaxis()
    return figure
