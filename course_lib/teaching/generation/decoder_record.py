"""Lecture 15: a decoder of GPT-2's shape on an H200, as `benchmarks/gpt2.py` recorded it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib import style
from course_lib.benchmark.records import Record
from course_lib.benchmark.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def speeds(record: Record, candidate: str, over: str) -> dict[str, Interval]:
    """A candidate's speed over another one by case, in the record's order; cases in which it was not measured are missing."""
    rows = [row for row in record.rows if row["candidate"] == candidate and "failed" not in row]
    return {row["case"]: Interval(**row["speedup"][over]) for row in rows}


def draw_speeds(record: Record, candidates: dict[str, str], over: str, title: str) -> Figure:
    """Bars with 95 % intervals: one group for each case, a line at 1, and "not measured" where a bar is missing.

    Args:
        record: ``recorded("gpt2_h200")``.
        candidates: names in the record, with the names in the legend.
        over: the candidate that the speeds are divided by.
        title: the takeaway.
    """
    cases = list(dict.fromkeys(row["case"] for row in record.rows))
    figure = style.figure(7.5, 3.6)
    axes = figure.add_subplot()
    width = 0.8 / len(candidates)
    for index, (candidate, name) in enumerate(candidates.items()):
        found = speeds(record, candidate, over)
        places = {case: cases.index(case) + (index - (len(candidates) - 1) / 2) * width for case in cases}
        medians = [found[case].median for case in found]
        below = [found[case].median - found[case].low for case in found]
        above = [found[case].high - found[case].median for case in found]
        axes.bar([places[case] for case in found], medians, width, yerr=(below, above), color=style.color(index), label=name)
        for case in found:
            axes.annotate(
                f"{found[case].median:.2f}x",
                (places[case], found[case].high),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7,
            )
        for case in set(cases) - set(found):
            axes.annotate(
                "not measured", (places[case], 0.03), ha="center", va="bottom", rotation=90, fontsize=7, color="#777777"
            )
    axes.axhline(1, color="#777777", lw=1, ls="--")
    axes.set_xticks(range(len(cases)), cases)
    axes.set(xlabel="case", ylabel=f"speed over {over} (x)", title=title)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(candidates), frameon=False, fontsize=8
    )
    return figure
