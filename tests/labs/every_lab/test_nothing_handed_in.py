"""A submission without files has no points, and each task says which file is missing."""

from __future__ import annotations

import pytest

from course_lib import labs
from course_lib.errors import MISSING_FILE
from course_lib.labs import Examiner


@pytest.mark.parametrize("name", ["lab14", "lab06", "lab03", "lab11"])
def test_nothing_was_handed_in(name, tmp_path):
    lab = labs.find(name)
    found = lab.examine(tmp_path, Examiner())
    assert found.points == 0 and [one.task.id for one in found.outcomes] == [task.id for task in lab.tasks]
    assert {one.code for one in found.outcomes} == {MISSING_FILE}
