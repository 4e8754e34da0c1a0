"""Small figures for notebooks: a profile's range, variants of a plan side by side, images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    import numpy as np

    from course_lib.engines import Plan
    from course_lib.recipe import ShapeRange

_LETTERS = 14.5  # in an inch of a figure of bars, of the longest name and of the label of an axis that are side by side


def draw_range(shapes: ShapeRange, answered: Mapping[int, bool]) -> style.Figure:
    """The range of a profile and what an engine did: one dot per tested size, filled if the engine answered.

    Args:
        shapes: the profile's range for one input.
        answered: for each batch size that was tried, whether the engine accepted it.
    """
    low, best, high = (bound[0] for bound in (shapes.min, shapes.opt, shapes.max))
    figure, axes = style.subplots(1.9)
    axes.axvspan(low - 0.5, high + 0.5, color=style.color(2), alpha=0.15, lw=0)
    for accepted, marker, face in ((True, "o", style.color(2)), (False, "x", style.color(1))):
        sizes = [size for size, ok in answered.items() if ok is accepted]
        label = f"{'answered' if accepted else 'rejected'}: {len(sizes)}"
        axes.plot(sizes, [0] * len(sizes), marker, color=face, ms=6, ls="", label=label)
    marks: dict[int, list[str]] = {}
    for size, word in ((low, "min"), (best, "opt"), (high, "max")):
        marks.setdefault(size, []).append(word)
    for size, words in marks.items():
        arrow = {"arrowstyle": "-|>"}
        axes.annotate(" = ".join(words), (size, 0.0), (size, 0.55), ha="center", weight="bold", arrowprops=arrow)
    axes.set(ylim=(-0.5, 1.0), yticks=[], xlabel="batch size tried")
    axes.spines["left"].set_visible(False)
    style.name_colors(axes)
    kept = all(ok == (low <= size <= high) for size, ok in answered.items())
    takeaway = (
        "Shapes inside the profile run; shapes outside raise an error"
        if kept
        else "The engine's answers do not match the profile"
    )
    axes.set_title(takeaway, loc="left")
    return figure


def variants(plans: Mapping[str, Plan]) -> style.Figure:
    """Draw the time in the compiler and the size of the serialized plan, one bar per variant; the smallest plan stands out."""
    figure = style.figure(0.9 + 0.36 * len(plans))
    seconds = {name: plan.build_seconds for name, plan in plans.items()}
    kilobytes = {name: len(plan.data) / 1e3 for name, plan in plans.items()}
    smallest = min(kilobytes, key=kilobytes.__getitem__)
    left, right = figure.subplots(1, 2)
    _bars(left, seconds, "build time (s)", "{:.2f}", smallest)
    _bars(right, kilobytes, "plan size (kB)", "{:.0f}", smallest)
    right.set_yticklabels([])
    figure.suptitle(f"The {smallest} plan is the smallest: {kilobytes[smallest]:.0f} kB")
    return figure


def bars(values: Mapping[str, float], label: str, title: str, *, form: str = "{:.1f}", highlight: str = "") -> style.Figure:
    """Horizontal bars in one color, with their values.

    Args:
        values: one bar for each entry, drawn from top to bottom.
        label: name of the quantity, with its unit.
        title: the takeaway, with the baseline of a ratio.
        form: format of a value next to its bar.
        highlight: name of the bar that the title is about, which gets another color.
    """
    figure, axes = style.subplots(0.75 + 0.3 * len(values))
    _bars(axes, values, label, form, highlight)
    figure.suptitle(title)
    return figure


def _bars(axes: style.Axes, values: Mapping[str, float], label: str, form: str, highlight: str) -> None:
    axes.barh(range(len(values)), list(values.values()), 0.7, color=[style.color(name == highlight) for name in values])
    for row, value in enumerate(values.values()):  # a negative one at the right of zero: at the left are the names
        axes.annotate(form.format(value), (max(value, 0), row), (3, 0), textcoords="offset points", va="center")
    style.name_rows(axes, list(values))
    axes.set_xticks([])  # every bar has its value
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.12)
    longest = max(map(len, values), default=0)
    beside = len(label) + longest < _LETTERS * style.figure_width(axes)
    axes.set_xlabel(label, loc="left" if beside else "right")  # a long one goes on below the names


def log_dots(values: Mapping[str, float], label: str, title: str, *, highlight: Collection[str] = ()) -> style.Figure:
    """Values as dots on a logarithmic axis, from top to bottom. The length of bars would have no meaning there.

    Args:
        highlight: names of the dots that the title is about, which get another color.
    """
    figure, axes = style.subplots(1.1 + 0.32 * len(values))
    for place, (name, value) in enumerate(values.items()):
        axes.plot(value, place, "o", ms=7, color=style.color(name in highlight))
        axes.annotate(style.power(value, ".3g"), (value, place), (8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(values.values()) / 2, max(values.values()) * 2)
    style.name_rows(axes, list(values))
    axes.grid(axis="y", color="0.9")
    axes.set_xlabel(f"{label}, logarithmic")
    axes.set_title(title)
    return figure


def gallery(images: Mapping[str, np.ndarray] | Sequence[tuple[str, np.ndarray]], title: str) -> style.Figure:
    """Gray images in a row, dark where the values are high; each with its caption.

    Args:
        images: caption and array of shape ``(height, width)``, in pixels; each image has its own gray scale.
        title: the takeaway.
    """
    pairs = list(images.items()) if isinstance(images, Mapping) else list(images)
    figure = style.figure(2.3, width=min(style.WIDTH, 1.9 * len(pairs)))
    for place, (caption, image) in enumerate(pairs):
        axes = figure.add_subplot(1, len(pairs), place + 1)
        axes.imshow(image, cmap="gray_r", interpolation="nearest")
        axes.set_title(caption, fontsize=8.5, weight="normal")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color="#cccccc")
    figure.suptitle(title)
    return figure
