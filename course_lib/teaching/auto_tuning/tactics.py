"""The information in the name of a kernel, and figures of a tuner that times each candidate once."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib import style

if TYPE_CHECKING:
    from course_lib.benchmark.tuner import Tuning


_TILE = re.compile(r"tile(?:size)?(\d{1,4})x(\d{1,4})x(\d{1,4})")
_ALGORITHMS = ("implicit_gemm", "winograd", "fft", "image_first_layer", "smallk", "pooling", "gemm")  # the first that fits


@dataclass(frozen=True)
class TacticName:
    """The readable parts of a tactic's name. A part is empty if the name does not contain it. NVIDIA does not document a grammar.

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


def draw_tactics(rows: Sequence[Mapping[str, Any]], title: str, *, most: int = 12) -> style.Figure:
    """Draw the time of the layers for each kind of tactic.

    Args:
        rows: with the keys ``tactic`` and ``ms``, one for each layer.
        title: the takeaway.
        most: number of bars; the rest is one sum.
    """
    spent: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        spent[str(read_tactic(str(row["tactic"])))].append(float(row["ms"]))
    ranked = sorted(spent.items(), key=lambda entry: -sum(entry[1]))
    shown = ranked[:most] + ([("all others", [ms for _, times in ranked[most:] for ms in times])] if len(ranked) > most else [])
    figure, axes = style.subplots(1.0 + 0.27 * len(shown))
    bars = axes.barh(range(len(shown)), [sum(times) for _, times in shown], 0.7, color=style.color(0))
    axes.bar_label(bars, [f"{len(times)} layer{'s' if len(times) != 1 else ''}" for _, times in shown], padding=3, fontsize=8)
    style.name_rows(axes, [name for name, _ in shown], 8)
    axes.margins(x=0.15)
    axes.set_xlabel("milliseconds of one inference")
    axes.set_title(title)
    return figure


def draw_tuning(tuning: Tuning, winners: Sequence[str]) -> style.Figure:
    """Times of every round on the left, with the median; on the right how often each tactic won a single try.

    Args:
        tuning: the paired measurement.
        winners: results of `first_impression`, one for each repetition.
    """
    names = list(tuning.times_ms)
    won = Counter(winners)
    figure, (left, right) = style.subplots(1.1 + 0.4 * len(names), 1, 2, sharey=True, width_ratios=(2, 1))
    hues = [style.color(name == tuning.best) for name in names]
    for row, (name, hue) in enumerate(zip(names, hues, strict=True)):
        times = tuning.times_ms[name]
        left.plot(times, [row] * len(times), "|", color=hue, alpha=0.5, ms=12)
        left.plot(tuning.medians_ms[name], row, "D", color=hue, ms=6)
    left.set_xscale("log")
    style.name_rows(left, names)
    left.set_xlabel("ms (diamond: median)")
    bars = right.barh(range(len(names)), [won[name] for name in names], 0.6, color=hues)
    right.bar_label(bars, padding=3, fontsize=8)
    right.margins(x=0.2)
    right.set_xlabel(f"wins in {len(winners)} tries")
    wrong = sum(name != tuning.best for name in winners)
    figure.suptitle(f"{tuning.best} has the smallest median; a single try chose another {wrong} times of {len(winners)}")
    return figure
