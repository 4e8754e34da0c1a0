"""Algorithms for the same convolution compared: how many multiplications, and how exact the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_algorithms(multiplications: Mapping[str, int], errors: Mapping[str, Mapping[str, float]], title: str) -> Figure:
    """Bars of multiplications on the left, relative errors on a logarithmic axis on the right.

    Args:
        multiplications: by algorithm, drawn from top to bottom.
        errors: for each number type the relative error by algorithm; an algorithm may be missing in one.
        title: the takeaway.
    """
    names = list(multiplications)
    figure = style.figure(9.0, 1.0 + 0.42 * len(names))
    left, right = figure.subplots(1, 2, sharey=True)
    bars = left.barh(range(len(names)), [count / 1e6 for count in multiplications.values()], 0.6, color=style.colour(0))
    left.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.margins(x=0.15)
    left.set_xlabel("million multiplications")
    for index, (dtype, by_name) in enumerate(errors.items()):
        rows = [names.index(name) for name in by_name]
        right.semilogx(list(by_name.values()), rows, "os^D"[index % 4], color=style.colour(index + 1), label=dtype, ms=7)
    right.set_xlabel("relative error of the result")
    right.grid(axis="x", alpha=0.3)
    right.legend(frameon=False, fontsize=8, title="the multiplier reads", title_fontsize=8)
    figure.suptitle(title, fontsize=10, weight="bold")
    return figure
