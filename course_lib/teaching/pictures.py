"""Small figures for notebooks: the workflow and its memory, a profile's range, variants of a plan side by side, images."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from course_lib import style

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from course_lib.engines import Plan
    from course_lib.recipe import ShapeRange

_HOST, _DEVICE, _YOURS = style.COLORS[0], style.COLORS[1], style.COLORS[2]
_GRAY = "#777777"
_LETTERS = 14.5  # in an inch of a figure of bars, of the longest name and of the label of an axis that are side by side


def workflow() -> Figure:
    """Builder, network, config, profile, plan, runtime, engine, context and plugin: which object creates which, and the memory of each."""
    figure, axes = style.subplots(5.2)
    _panel(axes, 4.4, 8.6, "build: once, on the build machine")
    _panel(axes, 0.0, 3.4, "run: for every request, on the GPU")

    _card(axes, 0.2, 8.0, 2.2, "your weights", "numpy, ONNX file", _YOURS)
    _card(axes, 0.2, 7.0, 2.2, "network", "layers; borrows weights", _HOST)
    _card(axes, 0.2, 6.0, 2.2, "config", "workspace, flags", _HOST)
    _card(axes, 0.2, 5.0, 2.2, "profile", "min, opt, max", _HOST)
    _card(axes, 3.0, 6.0, 1.5, "builder", "makes and reads", _HOST)
    _card(axes, 5.0, 6.0, 1.2, "plan", "bytes, a file", _HOST)
    _card(axes, 5.0, 2.8, 1.2, "runtime", "reads plans", _HOST)
    _card(axes, 1.7, 2.8, 2.1, "engine", "weights on the GPU", _DEVICE)
    _card(axes, 1.7, 1.7, 2.1, "context", "activations, scratch", _DEVICE)
    _card(axes, 1.7, 0.6, 2.1, "input, output buffers", "on the GPU", _YOURS)
    _card(axes, 0.2, 2.8, 1.1, "plugin", "your kernel", _YOURS, dashed=True)

    _arrow(axes, (1.3, 7.65), (1.3, 7.35))
    _arrow(axes, (2.4, 7.0), (3.2, 6.35))
    _arrow(axes, (2.4, 6.0), (3.0, 6.0))
    _arrow(axes, (2.4, 5.0), (3.2, 5.65))
    _arrow(axes, (4.5, 6.0), (5.0, 6.0))
    _arrow(axes, (5.6, 5.65), (5.6, 3.15))
    _arrow(axes, (5.0, 2.8), (3.8, 2.8), "deserializes", (4.4, 3.0))
    _arrow(axes, (2.75, 2.45), (2.75, 2.05), "creates", (3.2, 2.25))
    _arrow(axes, (2.75, 0.95), (2.75, 1.35), "only addresses", (3.45, 1.15))
    _arrow(axes, (1.3, 2.8), (1.7, 2.8))

    legend = {_HOST: "TensorRT's, in host memory", _DEVICE: "TensorRT's, in GPU memory", _YOURS: "yours: keep it alive"}
    for y, (hue, text) in zip((1.7, 1.3, 0.9), legend.items(), strict=True):
        axes.text(4.3, y, text, va="center", fontsize=8, color=hue, weight="bold")
    axes.set(xlim=(-0.05, 6.45), ylim=(-0.1, 9.2))
    axes.set_axis_off()
    axes.set_title("The plan separates the two phases: build once, then run many times")
    return figure


def _panel(axes: Axes, low: float, high: float, title: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch((0, low), 6.4, high - low, "round,pad=0,rounding_size=0.15", facecolor="#f4f4f4", edgecolor="none")
    )
    axes.text(0.05, high + 0.25, title, va="center", fontsize=9, color="#333333")


def _card(axes: Axes, left: float, y: float, width: float, name: str, detail: str, hue: str, *, dashed: bool = False) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.patches import FancyBboxPatch

    box = FancyBboxPatch((left, y - 0.36), width, 0.72, "round,pad=0,rounding_size=0.1", lw=1.3, edgecolor=hue)
    box.set(facecolor=to_rgba(hue, 0.15), linestyle="--" if dashed else "-")
    axes.add_patch(box)
    axes.text(left + width / 2, y + 0.14, name, ha="center", va="center", fontsize=9, weight="bold")
    axes.text(left + width / 2, y - 0.17, detail, ha="center", va="center", fontsize=8, color="#333333")


_Point = tuple[float, float]


def _arrow(axes: Axes, start: _Point, end: _Point, text: str = "", at: _Point = (0, 0)) -> None:
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "-|>", "color": _GRAY, "shrinkA": 1, "shrinkB": 1})
    axes.text(*at, text, ha="center", va="center", fontsize=8, color="#555555")


def draw_range(shapes: ShapeRange, answered: Mapping[int, bool], *, axis: int = 0, name: str = "batch") -> Figure:
    """The range of a profile and what an engine did: one dot per tested size, filled if the engine answered.

    Args:
        shapes: the profile's range for one input.
        answered: for each size of the dimension that was tried, whether the engine accepted it.
        axis: index of the dimension.
        name: name of the dimension.
    """
    low, best, high = (bound[axis] for bound in (shapes.min, shapes.opt, shapes.max))
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
    axes.set(ylim=(-0.5, 1.0), yticks=[], xlabel=f"{name} size tried")
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


def variants(plans: Mapping[str, Plan]) -> Figure:
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


def bars(values: Mapping[str, float], label: str, title: str, *, form: str = "{:.1f}", highlight: str = "") -> Figure:
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


def _bars(axes: Axes, values: Mapping[str, float], label: str, form: str, highlight: str) -> None:
    drawn = axes.barh(range(len(values)), list(values.values()), 0.7, color=[style.color(name == highlight) for name in values])
    axes.bar_label(drawn, [form.format(value) for value in values.values()], padding=3)
    style.name_rows(axes, list(values))
    axes.set_xticks([])  # every bar has its value
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.12)
    longest = max(map(len, values), default=0)
    beside = len(label) + longest < _LETTERS * style.figure_width(axes)
    axes.set_xlabel(label, loc="left" if beside else "right")  # a long one goes on below the names


def log_dots(values: Mapping[str, float], label: str, title: str, *, highlight: Collection[str] = ()) -> Figure:
    """Values as dots on a logarithmic axis, from top to bottom. The length of bars would have no meaning there.

    Args:
        highlight: names of the dots that the title is about, which get another color.
    """
    figure, axes = style.subplots(1.1 + 0.32 * len(values))
    for place, (name, value) in enumerate(values.items()):
        axes.plot(value, place, "o", ms=7, color=style.color(name in highlight))
        axes.annotate(f"{value:.3g}", (value, place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(values.values()) / 2, max(values.values()) * 2)
    axes.set_ylim(len(values) - 0.5, -0.5)
    axes.set_yticks(range(len(values)), list(values))
    axes.grid(axis="y", color="0.9")
    axes.set_xlabel(f"{label}, logarithmic")
    axes.set_title(title)
    return figure


def gallery(images: Mapping[str, np.ndarray] | Sequence[tuple[str, np.ndarray]], title: str) -> Figure:
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
        for spine in axes.spines.values():
            spine.set_visible(True)
            spine.set_color("#cccccc")
    figure.suptitle(title)
    return figure
