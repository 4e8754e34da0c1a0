"""Lab 14's figures: what each product loses, and size against loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from course_lib import style
from course_lib.labs.lab14_four_bits.given import BUDGET
from course_lib.labs.lab14_four_bits.loss import Lost


def loss_by_product(losses: Mapping[str, Mapping[str, float]], takeaway: str) -> style.Figure:
    """Draw the bits per byte that are lost if one product alone is stored in another form, by form and product."""
    products = list(next(iter(losses.values())))
    figure, axes = style.subplots(1.2 + 0.2 * len(products))
    for index, (form, row) in enumerate(losses.items()):
        axes.plot([1e3 * row[name] for name in products], np.arange(len(products)), "o", color=style.color(index), label=form)
    style.name_rows(axes, list(products))
    axes.set(xlabel="lost bits per byte (thousandths)", title=takeaway)
    style.name_colors(axes)
    return figure


def size_and_loss(points: Mapping[str, tuple[float, Lost]], takeaway: str) -> style.Figure:
    """Draw bits per weight against lost bits per byte, one point with its interval for each way of storing the products."""
    figure, axes = style.subplots(3.4)
    for index, (name, (bits, lost)) in enumerate(points.items()):
        mean, half, hue = 1e3 * lost.mean, 1e3 * lost.half_width, style.color(index)
        axes.errorbar(bits, mean, yerr=half, fmt="o", capsize=3, color=hue)
        axes.annotate(name, (bits, mean + half), (0, 4), textcoords="offset points", ha="center", fontsize=8, color=hue,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    axes.axhline(1e3 * BUDGET, color="#777777", lw=0.8, ls="--", label="budget")
    axes.margins(x=0.2, y=0.12)
    axes.set(xlabel="bits per weight, with scales", ylabel="lost bits per byte (thousandths)", title=takeaway)
    axes.set_ylim(bottom=0)
    style.name_lines(axes)
    return figure
