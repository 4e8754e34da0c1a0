"""The requirements of a task as the rows of a table: in a notebook, on a terminal and in a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.labs.framework.criteria import Criterion

COLUMNS = ("requirement", "found", "half of the points", "all points")
HALF, ALL = COLUMNS[2:]  # values of `Criterion.needed_for`
_MARKS = {True: "\u2713", False: "\u2717", None: "?"}  # by `Criterion.met`


def rows(criteria: Iterable[Criterion]) -> list[tuple[str, ...]]:
    """Each requirement once: its name, what was found and expected, and what half of the points and all points need, with marks.

    All points need what half of them need, too.
    """
    needed: dict[tuple[str, str], dict[str, str]] = {}
    for one in criteria:
        found = (one.found if one.has_value else "") + (f" (expected {one.expected})" if one.withholds else "")
        bound = f"{_MARKS[one.met]} {one.bound if one.has_value else ''}".strip()
        needed.setdefault((one.name, found.strip()), {})[one.needed_for] = bound
    return [(*row, bounds.get(HALF, ""), bounds.get(ALL) or bounds[HALF]) for row, bounds in needed.items()]
