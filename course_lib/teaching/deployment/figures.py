"""A decision tree as a figure, and which plan loads on which GPU generation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_lib import style
from course_lib.engines.plan import Plan, check_target
from course_lib.errors import PlanError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# advice, or one question with what follows each answer: {"Does it load?": {"no": "...", "yes": {...}}}
Tree = str | Mapping[str, Mapping[str, "Tree"]]
_ROW, _STEP = 27, 20  # points from row to row, and from a question to what follows its answers


@dataclass(frozen=True)
class _Box:
    text: str
    depth: int
    answer: str
    leaf: bool
    parent: int  # the row of the question that leads here


def draw_tree(tree: Tree, title: str) -> Figure:
    """Draw a tree of questions from top to bottom, each box in its own row below the question that leads to it.

    Args:
        tree: advice, or one question and what follows each of its answers.
        title: the takeaway.

    Raises:
        ValueError: a level with more than one question, or without an answer.
    """
    boxes = list(_boxes(tree, 0, "", 0, 0))
    figure = style.figure(0.4 + len(boxes) * _ROW / 72)
    axes = figure.add_subplot()
    longest: dict[int, int] = {}
    for box in boxes:
        longest[box.depth] = max(longest.get(box.depth, 0), len(box.answer))
    for row, box in enumerate(boxes):
        _draw(axes, row, box, longest[box.depth])
    axes.set(xlim=(0, 72 * style.WIDTH), ylim=((len(boxes) - 0.5) * _ROW, -0.5 * _ROW))  # in points
    axes.set_axis_off()
    axes.set_title(title)
    return figure


def _boxes(tree: Tree, depth: int, answer: str, row: int, parent: int) -> Iterator[_Box]:
    """The box of a tree in a row, then the boxes of its children."""
    if isinstance(tree, str):
        yield _Box(tree, depth, answer, True, parent)
        return
    if len(tree) != 1 or not (found := next(iter(tree.items())))[1]:
        raise ValueError(f"expected one question with answers, found {list(tree)}")
    question, answers = found
    yield _Box(question, depth, answer, False, parent)
    below = row + 1
    for word, part in answers.items():
        for box in _boxes(part, depth + 1, word, below, row):
            yield box
            below += 1


def _draw(axes: Axes, row: int, box: _Box, longest: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    left, y = float(box.depth * _STEP), row * _ROW
    if box.depth:
        corner = left - _STEP / 2
        axes.plot([corner, corner, left - 2], [(box.parent + 0.4) * _ROW, y, y], color="#777777", lw=1)
        axes.text(left, y, box.answer, fontsize=8, weight="bold", va="center")
        left += 5.4 * longest + 6
    hue, width = (style.color(2), 72 * style.WIDTH - left - 2) if box.leaf else (style.color(0), 4.6 * len(box.text) + 10)
    frame = FancyBboxPatch((left, y - 0.42 * _ROW), width, 0.84 * _ROW, "round,pad=0,rounding_size=3")
    frame.set(facecolor=hue + "26", edgecolor=hue, lw=1.1)
    axes.add_patch(frame)
    axes.text(left + 5, y, textwrap.fill(box.text, int((width - 8) / 4.3)), va="center", fontsize=8, linespacing=1.05)


def runs_on(plan: Plan, capability: str) -> bool:
    """Whether a plan was compiled for this compute capability, such as ``"sm89"``."""
    try:
        check_target(plan, capability)
    except PlanError:
        return False
    return True


def draw_targets(plans: Mapping[str, Plan], devices: Mapping[str, str], title: str) -> Figure:
    """Draw one row per plan and one column per device, filled if the plan loads, with a cross if it is rejected.

    Args:
        plans: by name.
        devices: a device's name by its compute capability.
        title: the takeaway.
    """
    figure = style.figure(1.3 + 0.42 * len(plans))
    axes = figure.add_subplot()
    capabilities: Sequence[str] = list(devices)
    for row, plan in enumerate(plans.values()):
        for column, capability in enumerate(capabilities):
            loads = runs_on(plan, capability)
            axes.plot(column, row, "o" if loads else "x", ms=11 if loads else 7, color=style.color(2 if loads else 1))
    axes.set_xticks(range(len(devices)), [f"{name}\n{capability}" for capability, name in devices.items()], fontsize=8)
    axes.set_yticks(range(len(plans)), list(plans))
    axes.set(xlim=(-0.5, len(devices) - 0.5), ylim=(len(plans) - 0.5, -0.5))
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title(title)
    return figure
