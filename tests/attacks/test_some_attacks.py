"""A dozen attacks beside an honest hand-in, in a minute: what `make test` has time for. `make attack-test` grades them all."""

from __future__ import annotations

import pytest

from tests.attacks.blocked import assert_blocked, assert_no_trace
from tests.attacks.catalogue import attacks
from tests.attacks.scene import HONEST, PARTLY, WRONG, Scene, grade
from tests.grading.conftest import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.timeout(600)]

NAMES = {
    *("calls_home", "edits_the_gradebook", "exits", "floods", "forges_points", "hands_in_a_pipe", "leaves_a_daemon"),
    *("links_to_a_secret", "loops_for_ever", "patches_the_check", "prints_a_page", "reads_the_graders_memory"),
    *("steals_from_a_neighbour", "submits_links", "writes_outside"),
}
SOME = [attack for attack in attacks() if attack.name in NAMES]


@pytest.fixture(scope="module")
def graded(course_folder, reference) -> Scene:
    return grade(course_folder, reference, SOME)


@pytest.mark.parametrize("attack", SOME, ids=lambda attack: attack.name)
def test_attacker_gains_nothing(graded, attack):
    assert_blocked(graded, attack)


def test_neighbours_have_what_they_earn(graded):
    assert {name: graded.grades[name].score for name in (HONEST, WRONG, PARTLY)} == {HONEST: 10, WRONG: 0, PARTLY: 3}
    assert [graded.grades[name].waiting for name in (HONEST, WRONG, PARTLY)] == [0, 0, 0], "their written answers are untouched"


def test_nothing_left_its_sandbox(graded):
    assert len(graded.pages()) > len(SOME)
    assert_no_trace(graded)
