"""Late penalties, by themselves and in the gradebook."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest
from nbgrader.api import Gradebook
from traitlets import TraitError
from traitlets.config import Config

from course_lib.cli import console
from course_lib.errors import CourseError
from course_lib.grading.nbgrader import bridge
from course_lib.grading.nbgrader.gradebook import LatePenalty
from course_lib.grading.reports.class_files import write
from tests.grading.classes import DUE, new_room, put, verdict
from tests.grading.conftest import LAB, ROOT

DAY = 86_400


@pytest.mark.parametrize(
    ("settings", "score", "late_s", "penalty"),
    [
        ({}, 10, 5 * DAY, 0),
        ({"per_day": 10}, 8, 1, 0.8),  # a day counts from its first second
        ({"per_day": 10}, 8, DAY, 0.8),
        ({"per_day": 10}, 8, DAY + 1, 1.6),
        ({"per_day": 10, "most": 50}, 8, 30 * DAY, 4),
        ({"per_day": 10}, 8, 30 * DAY, 8),  # never more than there is
        ({"per_day": 1.5, "unit": "points"}, 8, DAY + 1, 3),
        ({"per_day": 1.5, "unit": "points", "most": 2}, 8, DAY + 1, 2),
        ({"per_day": 1.5, "unit": "points"}, 1, DAY + 1, 1),
    ],
)
def test_by_hand(settings, score, late_s, penalty):
    assert LatePenalty(**settings).late_submission_penalty("ada", score, late_s) == pytest.approx(penalty)


def test_wrong_settings_are_rejected():
    with pytest.raises(TraitError):
        LatePenalty(per_day=-1)
    with pytest.raises(TraitError):
        LatePenalty(unit="hours")


@pytest.mark.parametrize("change", ["points by hand", "due date", "extension"])
def test_a_report_brings_penalties_up_to_date(tmp_path, monkeypatch, change):
    """They were those of the last grading: 20 % of 10 points stayed 2 when points by hand made it 12."""
    room = new_room(tmp_path)
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.LatePenalty.per_day = 20\n")
    put(room, "ada", verdict(), late=timedelta(hours=5), written=None, penalty=2.0)
    put(room, "ben", verdict(), late=timedelta(hours=5), written=0.0, penalty=2.0)
    with Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}") as gradebook:
        if change == "points by hand":
            gradebook.find_grade("written", LAB.name, LAB.name, "ada").manual_score = 2.0
            gradebook.db.commit()
        elif change == "due date":
            gradebook.update_or_create_assignment(LAB.name, duedate=DUE - timedelta(days=1))
        else:
            gradebook.grant_extension(LAB.name, "ada", hours=6)
    made = write(LAB, room, tmp_path / "grades.csv", "moodle")
    changes = {"ada": {"points by hand": (2, 2.4), "due date": (2, 4), "extension": (2, 0)}[change]}
    if change == "due date":
        changes["ben"] = (2, 4)
    assert made.recharged == {student: pytest.approx(penalty) for student, penalty in changes.items()}
    final = {"points by hand": "9.6", "due date": "6", "extension": "10"}[change]
    assert f"ada,,{final}" in (tmp_path / "grades.csv").read_text()
    assert write(LAB, room).recharged == {}, "once"
    console.class_report(made)


def test_a_penalty_in_the_file_that_is_not_tracked_counts_everywhere(tmp_path):
    """In nbgrader_config.py it was lost or in the way when the course was updated."""
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    (tmp_path / "nbgrader_config_local.py").write_text("c = get_config()\nc.LatePenalty.per_day = 30\n")
    assert bridge.own_settings(tmp_path)["LatePenalty"] == {"per_day": 30}
    formgrader = Config()
    bridge.configure(formgrader, root=tmp_path)
    assert formgrader.LatePenalty.per_day == 30
    (tmp_path / "nbgrader_config_local.py").write_text("c = get_config()\nc.LatePenalty.per_day =\n")
    with pytest.raises(CourseError, match=r"nbgrader_config_local\.py cannot be used \(SyntaxError"):
        bridge.own_settings(tmp_path)
