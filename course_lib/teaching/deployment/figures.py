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
_STEP, _QUESTION, _ADVICE = 4.4, 2.2, 5.6  # from column to column, and widths of boxes
_LETTERS = 9.0  # that fit into a unit of width


@dataclass(frozen=True)
class _Box:
    text: str
    x: float
    y: float
    leaf: bool
    answer: str
    parent: tuple[float, float] | None  # the right edge of the question that leads here


def draw_tree(tree: Tree, title: str) -> Figure:
    """Draw a tree of questions.

    Args:
        tree: advice, or one question and what follows each of its answers.
        title: the takeaway.

    Raises:
        ValueError: a level with more than one question, or without an answer.
    """
    boxes = list(_boxes(tree, 0.0, 0.0, "", None))
    width = max(box.x for box in boxes) + _ADVICE
    rows = _leaves(tree)
    figure = style.figure(0.62 * width, 0.6 + 0.5 * rows)
    axes = figure.add_subplot()
    for box in boxes:
        _draw(axes, box)
    axes.set(xlim=(-0.05, width + 0.05), ylim=(rows - 0.4, -0.6))
    axes.set_axis_off()
    axes.set_title(title)
    return figure


def _leaves(tree: Tree) -> int:
    return 1 if isinstance(tree, str) else sum(_leaves(part) for part in _only(tree)[1].values())


def _only(tree: Mapping[str, Mapping[str, Tree]]) -> tuple[str, Mapping[str, Tree]]:
    if len(tree) != 1 or not (found := next(iter(tree.items())))[1]:
        raise ValueError(f"expected one question with answers, found {list(tree)}")
    return found


def _boxes(tree: Tree, x: float, top: float, answer: str, parent: tuple[float, float] | None) -> Iterator[_Box]:
    """The box of a tree whose leaves are in rows from `top` on, then the boxes of its children."""
    y = top + (_leaves(tree) - 1) / 2
    if isinstance(tree, str):
        yield _Box(tree, x, y, True, answer, parent)
        return
    question, follow = _only(tree)
    yield _Box(question, x, y, False, answer, parent)
    for word, part in follow.items():
        yield from _boxes(part, x + _STEP, top, word, (x + _QUESTION, y))
        top += _leaves(part)


def _draw(axes: Axes, box: _Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    hue, width = (style.color(2), _ADVICE) if box.leaf else (style.color(0), _QUESTION)
    corner = (box.x, box.y - 0.4)
    axes.add_patch(
        FancyBboxPatch(corner, width, 0.8, "round,pad=0,rounding_size=0.1", facecolor=hue + "26", edgecolor=hue, lw=1.1)
    )
    wrapped = textwrap.fill(box.text, int(width * _LETTERS))
    axes.text(box.x + width / 2, box.y, wrapped, ha="center", va="center", fontsize=7, linespacing=1.1)
    if box.parent:
        axes.annotate(
            "", (box.x, box.y), box.parent, arrowprops={"arrowstyle": "-|>", "color": "#777777", "shrinkA": 0, "shrinkB": 0}
        )
        at = 0.6  # of the way
        middle = (1 - at) * box.parent[0] + at * box.x
        white = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
        axes.text(middle, (1 - at) * box.parent[1] + at * box.y, box.answer, fontsize=7, ha="center", va="center", bbox=white)


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
    figure = style.figure(7.5, 1.3 + 0.42 * len(plans))
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
