"""Lab 06's figure: channels against the step of their tensor."""

from __future__ import annotations

import numpy as np

from course_lib import style


def channels_and_step(largest: np.ndarray, step: float, takeaway: str) -> style.Figure:
    """Draw the largest magnitude of each channel of a tensor, and the one step that all of them share in INT8."""
    figure, axes = style.subplots(3.0)
    axes.bar(np.arange(len(largest)), np.sort(largest), color=style.color(0), label="largest magnitude of a channel")
    axes.axhline(step, color=style.color(1), lw=1.5, label="step of the tensor")
    axes.set_yscale("log")
    axes.set(xlabel="channel, sorted", ylabel="magnitude (log)", title=takeaway)
    style.name_colors(axes)
    return figure
