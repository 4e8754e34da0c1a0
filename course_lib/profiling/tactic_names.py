"""What the name of a kernel says: for which GPU generation it was written, its algorithm and its tile."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TILE = re.compile(r"tile(?:size)?(\d{1,4})x(\d{1,4})x(\d{1,4})")
_ALGORITHMS = ("implicit_gemm", "winograd", "fft", "image_first_layer", "smallk", "pooling", "gemm")  # the first that fits


@dataclass(frozen=True)
class TacticName:
    """The readable parts of a tactic's name. Empty where the name does not say it; NVIDIA documents no grammar.

    Attributes:
        generation: such as ``"sm80"``: the oldest GPU generation that it runs on.
        algorithm: such as ``"implicit_gemm"``.
        tile: output rows, output columns and depth that one block of threads works on, as ``"128x128x32"``.
    """

    generation: str = ""
    algorithm: str = ""
    tile: str = ""

    def __str__(self) -> str:
        return " ".join(part for part in (self.generation, self.algorithm.replace("_", " "), self.tile) if part) or "unnamed"


def read_tactic(name: str) -> TacticName:
    """The parts of a name such as ``sm80_xmma_fprop_implicit_gemm_f16f16_..._tilesize128x128x32_...``; any text is accepted."""
    generation = re.match(r"sm\d{2,3}(?=_)", name)
    tile = _TILE.search(name)
    return TacticName(
        generation=generation[0] if generation else "",
        algorithm=next((word for word in _ALGORITHMS if word in name), ""),
        tile="x".join(tile.groups()) if tile else "",
    )


def draw_tactics(rows: Sequence[Mapping[str, Any]], title: str, *, most: int = 12) -> Figure:
    """How much time the layers of each kind of tactic take.

    Args:
        rows: with the keys ``tactic`` and ``ms``, one a layer.
        title: the takeaway.
        most: the bars to draw; the rest is summed in one.
    """
    spent: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        spent[str(read_tactic(str(row["tactic"])))].append(float(row["ms"]))
    ranked = sorted(spent.items(), key=lambda entry: -sum(entry[1]))
    shown = ranked[:most] + ([("all others", [ms for _, times in ranked[most:] for ms in times])] if len(ranked) > most else [])
    figure = style.figure(8.0, 1.0 + 0.27 * len(shown))
    axes = figure.add_subplot()
    bars = axes.barh(range(len(shown)), [sum(times) for _, times in shown], 0.7, color=style.colour(0))
    axes.bar_label(bars, [f"{len(times)} layer{'s' if len(times) != 1 else ''}" for _, times in shown], padding=3, fontsize=8)
    axes.set_yticks(range(len(shown)), [name for name, _ in shown], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("milliseconds of one inference")
    axes.set_title(title)
    return figure
