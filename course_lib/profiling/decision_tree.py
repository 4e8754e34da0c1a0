"""A decision tree as a figure: questions from left to right, what to do at the ends."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course_lib import style

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
    """The box of a tree whose leaves stand in rows from `top` on, then those of what follows."""
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

    hue, width = (style.colour(2), _ADVICE) if box.leaf else (style.colour(0), _QUESTION)
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
