"""What each version of Torch-TensorRT does with a keyword, as a grid; read from its released wheels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from course_lib import style
from course_lib.engines.torch_trt_keywords import of_version, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Fate = Literal["read", "taken and ignored", "swallowed"]
_SIGNS: dict[Fate, tuple[str, str, str]] = {
    "read": ("o", style.COLOURS[2], "read"),
    "taken and ignored": ("X", style.COLOURS[1], "a parameter, and ignored"),
    "swallowed": ("X", style.COLOURS[3], "unknown, swallowed by **kwargs"),
}


def fate(keyword: str, version: str) -> Fate:
    """What ``torch_tensorrt.compile`` of this version, ``"major.minor"``, does with a keyword.

    Raises:
        ValueError: a version that is not in the table.
    """
    row = of_version(table(), version, "keywords")
    if keyword in row["ignored"]:
        return "taken and ignored"
    return "read" if keyword in row["compile"] else "swallowed"


def draw_keywords(keywords: Sequence[str], title: str) -> Figure:
    """A row a keyword, a column a version.

    Args:
        keywords: of ``torch_tensorrt.compile``.
        title: the takeaway.
    """
    versions = list(table())
    figure = style.figure(7.5, 1.3 + 0.3 * len(keywords))
    axes = figure.add_subplot()
    for kind, (marker, hue, text) in _SIGNS.items():
        cells = [
            (column, row)
            for row, word in enumerate(keywords)
            for column, version in enumerate(versions)
            if fate(word, version) == kind
        ]
        axes.plot(*(zip(*cells, strict=True) if cells else ((), ())), marker, ls="", ms=9, color=hue, label=text)
    axes.set_xticks(range(len(versions)), versions)
    axes.set_yticks(range(len(keywords)), keywords, family="monospace", fontsize=8)
    axes.set(xlabel="version of Torch-TensorRT", xlim=(-0.5, len(versions) - 0.5), ylim=(len(keywords) - 0.5, -0.5))
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    axes.set_title(title)
    return figure
