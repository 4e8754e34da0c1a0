"""Lecture 15: a decoder of GPT-2's shape on an H200, as `benchmarks/gpt2.py` recorded it."""

from __future__ import annotations

from course_lib import style
from course_lib.benchmark.records import Record
from course_lib.benchmark.statistics import Interval


def speeds(record: Record, candidate: str, over: str) -> dict[str, Interval]:
    """A candidate's speed over another one by case, in the record's order; cases in which it was not measured are missing."""
    rows = [row for row in record.rows if row["candidate"] == candidate and "failed" not in row]
    return {row["case"]: Interval(**row["speedup"][over]) for row in rows}


def draw_speeds(record: Record, candidates: dict[str, str], over: str, title: str) -> style.Figure:
    """Bars with 95 % intervals: one group for each case, a line at 1, and "not measured" where a bar is missing.

    Args:
        record: ``recorded("gpt2_h200")``.
        candidates: names in the record, with the names in the legend.
        over: the candidate that the speeds are divided by.
        title: the takeaway.
    """
    cases = list(dict.fromkeys(row["case"] for row in record.rows))
    figure, axes = style.subplots(1.1 + 0.2 * len(cases) * (1 + len(candidates)))
    height = 0.8 / len(candidates)
    for index, (candidate, name) in enumerate(candidates.items()):
        found = speeds(record, candidate, over)
        places = {case: cases.index(case) + (index - (len(candidates) - 1) / 2) * height for case in cases}
        medians = [found[case].median for case in found]
        below = [found[case].median - found[case].low for case in found]
        above = [found[case].high - found[case].median for case in found]
        rows = [places[case] for case in found]
        axes.barh(rows, medians, height, xerr=(below, above), color=style.color(index), label=name)
        notes = {
            case: (f"{found[case].median:.2f}x", found[case].high) if case in found else ("not measured", 0) for case in cases
        }
        for case, (note, end) in notes.items():
            axes.annotate(note, (end, places[case]), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.axvline(1, color="#777777", lw=1, ls="--")
    style.name_rows(axes, cases)
    axes.margins(x=0.1)
    axes.set(xlabel=f"speed over {over} (x)", title=title)
    style.name_colors(axes)
    return figure
