"""Submissions that attack the grader, graded in two batches beside an honest one, a wrong one, and one that is right in part.

Each attack touches only what this test made: its own course, planted secrets, listeners on loopback, its own processes; and
each that asks for more than its share stops by itself, so that it does no harm where a limit is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from course_lib.grading.nbgrader import gradebook
from tests.attacks.blocked import assert_blocked, assert_no_trace
from tests.attacks.catalog import Attack, attacks
from tests.attacks.scene import HONEST, NOT_CONFINED, PARTLY, SECRET, WRONG, Scene, grade
from tests.grading.conftest import LAB, needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.timeout(1800)]

# What `tests/grading` does not show: there, a sandbox has no network, sees no other files, and writes nowhere else.
QUICK = {"edits_the_gradebook", "forges_points", "patches_the_check", "prints_a_page", "reads_the_graders_memory"}
ALL = [attack for attack in attacks() if not attack.by_engine]
SLOW = pytest.mark.slow  # `make attack-test`; the quick ones are in `make test`
BATCHES = (
    [attack for attack in ALL if attack.name in QUICK],
    [attack for attack in ALL if attack.name not in QUICK],
)
EACH = [
    pytest.param(number, attack, id=attack.name, marks=[SLOW] * number)
    for number, batch in enumerate(BATCHES)
    for attack in batch
]
BOTH = pytest.mark.parametrize("batch", [pytest.param(0, id="quick"), pytest.param(1, id="rest", marks=SLOW)])


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Callable[[int], Scene]:
    """A batch after its grading, which happens once: of the first one here, so that `make quick` does without it."""
    batches = cache(lambda batch: grade(tmp_path_factory.mktemp("course"), reference, BATCHES[batch]))
    batches(0)
    return batches


@pytest.mark.parametrize(("batch", "attack"), EACH)
def test_attacker_gains_nothing(graded, batch: int, attack: Attack):
    assert_blocked(graded(batch), attack)


@BOTH
def test_neighbors_have_what_they_earn(graded, batch: int):
    grades = graded(batch).grades
    assert {name: grades[name].score for name in (HONEST, WRONG, PARTLY)} == {HONEST: 10, WRONG: 0, PARTLY: 3}
    assert not any(grades[name].review.needed for name in (HONEST, WRONG, PARTLY)), "their written answers are untouched"


@BOTH
def test_nothing_left_its_sandbox(graded, batch: int):
    assert len(graded(batch).pages()) > len(BATCHES[batch])
    assert_no_trace(graded(batch))


@BOTH
def test_gradebook_holds_every_score_once_and_nothing_else(graded, batch: int):
    scene = graded(batch)
    expected = {attack.name: attack.score for attack in BATCHES[batch]}
    expected |= {HONEST: 10, WRONG: 0, PARTLY: 3}
    with gradebook.opened(scene.room.folder) as book:
        found = {submission.student.id: submission for submission in book.assignment_submissions(LAB.name)}
        grades = {name: [one for notebook in found[name].notebooks for one in notebook.grades] for name in found}
        assert {name: sum(one.auto_score or 0 for one in grades[name]) for name in grades} == expected
        assert all(one.manual_score is None and not one.extra_credit for name in grades for one in grades[name])
        assert {one.max_score for name in grades for one in grades[name] if one.name == "profile"} == {3}


def test_active_content_is_stripped_from_the_graded_notebook(graded):
    outputs = graded(0).outputs("prints_a_page")
    assert outputs and "<script" not in outputs
    assert f"<b>{SECRET}-shown</b>" not in graded(0).grades["prints_a_page"].feedback.read_text()


@SLOW
@pytest.mark.parametrize("name", ["calls_home", "tries_every_socket"])
def test_without_the_sandbox_it_wins(tmp_path, reference, name):
    """That the tests above can fail."""
    scene = grade(tmp_path, reference, [attack for attack in ALL if attack.name == name], trusted=True, controls=False)
    won = {
        "calls_home": scene.calls == ["/stolen"],
        "tries_every_socket": NOT_CONFINED in scene.outputs(name) and len(scene.calls) >= 2,
    }
    assert won[name]
