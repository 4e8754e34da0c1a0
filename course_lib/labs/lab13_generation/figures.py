"""Lab 13's figure: what a new token costs, by its position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def cost_by_position(positions: Sequence[int], milliseconds: Mapping[str, Sequence[float]], takeaway: str) -> Figure:
    """Draw the time of a token for each decoder.

    Args:
        positions: number of tokens before the new one.
        milliseconds: for each decoder, the time at each position.
        takeaway: the title.
    """
    figure = style.figure(7.0, 3.2)
    axes = figure.subplots()
    for index, (name, times) in enumerate(milliseconds.items()):
        axes.plot(positions, times, "o-", color=style.color(index), label=name)
    axes.set(xlabel="tokens before the new one", ylabel="time of a token (ms)", title=takeaway)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure
