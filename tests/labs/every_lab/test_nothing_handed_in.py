"""A submission without files has no points, nor has the untouched release, and each task says where to look."""

from __future__ import annotations

import pytest

from course_lib import labs
from course_lib.errors import MISSING_FILE
from course_lib.labs import Examiner, Outcome
from tests.labs.untouched import leave_untouched

WORDS = {  # that the untouched release is told
    "lab03": "order is not written",
    "lab05": "still empty",
    "lab06": "not written yet",
    "lab08": "is still empty",
    "lab09": "still empty",
    "lab10": "still empty",
    "lab11": "still empty",
    "lab12": "still empty",
    "lab15": "is missing",
}


def outcomes_without_points(lab, folder) -> tuple[Outcome, ...]:
    found = lab.examine(folder, Examiner())
    assert found.points == 0 and [one.task.id for one in found.outcomes] == [task.id for task in lab.tasks]
    assert all(one.hint and "\n" not in one.message for one in found.outcomes), found.outcomes
    return found.outcomes


@pytest.mark.parametrize("name", labs.names())
def test_nothing_was_handed_in(name, tmp_path):
    lab = labs.find(name)
    outcomes = outcomes_without_points(lab, tmp_path)
    assert MISSING_FILE in {one.code for one in outcomes}
    assert all(any(file in one.message for file in lab.artifacts) for one in outcomes), outcomes


@pytest.mark.parametrize("name", labs.names())
def test_the_untouched_release_has_none(name, tmp_path):
    leave_untouched(name, tmp_path)
    outcomes = outcomes_without_points(labs.find(name), tmp_path)
    assert any(WORDS.get(name[:5], "") in f"{one.message} {one.hint}" for one in outcomes), outcomes
