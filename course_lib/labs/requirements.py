"""The requirements of a task as the rows of a table: in a notebook, on a terminal and in a report."""

from __future__ import annotations

from collections.abc import Iterable

from course_lib.labs.framework.criteria import ALL, HALF, Criterion

COLUMNS = ("requirement", "found", "half of the points", "all points")
_MARKS = {True: "\u2713", False: "\u2717", None: "?"}  # by `Criterion.met`


def rows(criteria: Iterable[Criterion]) -> list[tuple[str, ...]]:
    """Each requirement once: its name, what was found, and what half of the points and all points need, with marks for met and not met.

    All points need what half of them need, too.
    """
    needed: dict[tuple[str, str], dict[str, str]] = {}
    for one in criteria:
        needed.setdefault((one.name, one.found if one.has_value else ""), {})[one.needed_for] = _needed(one)
    return [(*row, bounds.get(HALF, ""), bounds.get(ALL) or bounds[HALF]) for row, bounds in needed.items()]


def _needed(criterion: Criterion) -> str:
    expected = f"(expected {criterion.expected})" if criterion.withholds else ""
    return " ".join(filter(None, (_MARKS[criterion.met], criterion.bound if criterion.has_value else "", expected)))
