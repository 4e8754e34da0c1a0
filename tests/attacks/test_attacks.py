"""Submissions that attack the grader, graded in one batch beside an honest one, a wrong one, and one that is right in part.

Each attack touches only what this test made: its own course, planted secrets, listeners on loopback, its own processes; and
each that asks for more than its share stops by itself, so that it does no harm where a limit is missing.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.attacks.blocked import assert_blocked, assert_no_trace
from tests.attacks.catalog import Attack, attacks
from tests.attacks.scene import HONEST, NOT_CONFINED, PARTLY, SECRET, WRONG, Scene, grade
from tests.grading.conftest import LAB, needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.slow, pytest.mark.timeout(1800)]

ALL = [attack for attack in attacks() if not attack.by_engine]
BATCH = [attack for attack in ALL if not attack.slow]
SLOW_TO_READ = ("markdown_without_end", "notebook_of_50_megabytes")
LONGEST_READ_S = (
    40.0  # of a submission that is made to be slow to read; an empty one takes 2, and 21 were seen beside another test run
)


@pytest.fixture(scope="module")
def graded(course_folder: Path, reference: Path) -> Scene:
    return grade(course_folder, reference, BATCH)


def each(chosen: list[Attack]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("attack", chosen, ids=[attack.name for attack in chosen])


# ---- the batch


@each(BATCH)
def test_attacker_gains_nothing(graded, attack):
    assert_blocked(graded, attack)


def test_honest_neighbor_has_full_marks(graded):
    found = graded.grades[HONEST]
    assert found.score == 10 and not found.review.needed, found.report.with_suffix(".json").read_text()


def test_wrong_neighbors_have_what_they_earn(graded):
    assert (graded.grades[WRONG].score, graded.grades[PARTLY].score) == (0, 3)


def test_nothing_left_its_sandbox(graded):
    assert len(graded.pages()) > len(BATCH)
    assert_no_trace(graded)


def test_active_content_is_stripped_from_the_graded_notebook(graded):
    outputs = graded.outputs("prints_a_page")
    assert outputs and "<script" not in outputs
    assert f"<b>{SECRET}-shown</b>" not in graded.grades["prints_a_page"].feedback.read_text()


def test_gradebook_holds_every_score_once_and_nothing_else(graded):
    from nbgrader.api import Gradebook

    expected = {attack.name: attack.score for attack in BATCH if attack.name in graded.grades} | {
        HONEST: 10,
        WRONG: 0,
        PARTLY: 3,
    }
    with Gradebook(f"sqlite:///{graded.room.folder / 'gradebook.db'}") as book:
        found = {submission.student.id: submission for submission in book.assignment_submissions(LAB.name)}
        grades = {name: [one for notebook in found[name].notebooks for one in notebook.grades] for name in found}
        assert {name: sum(one.auto_score or 0 for one in grades[name]) for name in grades} == expected
        assert all(one.manual_score is None and not one.extra_credit for name in grades for one in grades[name])
        assert {one.max_score for name in grades for one in grades[name] if one.name == "profile"} == {3}


@each([attack for attack in BATCH if attack.name in SLOW_TO_READ])
def test_a_page_that_is_slow_to_read_does_not_hold_up_the_batch(graded, attack):
    started = time.monotonic()
    graded.room.grade(LAB, [attack.name])
    assert time.monotonic() - started < LONGEST_READ_S


# ---- alone


@each([attack for attack in ALL if attack.slow])
@pytest.mark.slow
def test_attacker_that_takes_long_gains_nothing(tmp_path, reference, attack):
    scene = grade(tmp_path, reference, [attack])
    assert_blocked(scene, attack)
    assert_no_trace(scene)
    assert scene.grades[HONEST].score == 10


@pytest.mark.parametrize("name", ["calls_home", "tries_every_socket"])
def test_without_the_sandbox_it_wins(tmp_path, reference, name):
    """That the tests above can fail."""
    scene = grade(tmp_path, reference, [attack for attack in ALL if attack.name == name], trusted=True, controls=False)
    won = {
        "calls_home": scene.calls == ["/stolen"],
        "tries_every_socket": NOT_CONFINED in scene.outputs(name) and len(scene.calls) >= 2,
    }
    assert won[name]
