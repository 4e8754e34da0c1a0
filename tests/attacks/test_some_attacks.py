"""Some attacks beside an honest submission, in a minute: what `make test` has time for. `make attack-test` grades them all."""

from __future__ import annotations

import pytest

from tests.attacks.blocked import assert_blocked, assert_no_trace
from tests.attacks.catalog import attacks
from tests.attacks.scene import HONEST, PARTLY, WRONG, Scene, grade
from tests.grading.conftest import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.timeout(600)]

NAMES = {
    *("calls_home", "edits_the_gradebook", "exits", "floods", "forges_points", "hands_in_a_pipe"),
    *("links_to_a_secret", "patches_the_check", "reads_the_graders_memory", "steals_from_a_neighbor", "writes_outside"),
    # names, times and files at the door: each once stopped the whole batch, or its own grading
    *("name_with_a_hidden_space", "name_that_is_no_text", "name_of_240_characters", "name_that_matches_all"),
    *("name_of_the_class_report", "name_of_an_option", "name_of_a_formula", "says_a_time_to_one_of_two_parsers"),
    *("folders_in_place_of_files", "brings_60_megabytes_of_holes"),
}
SOME = [attack for attack in attacks() if attack.name in NAMES]


@pytest.fixture(scope="module")
def graded(course_folder, reference) -> Scene:
    return grade(course_folder, reference, SOME)


@pytest.mark.parametrize("attack", SOME, ids=lambda attack: attack.name)
def test_attacker_gains_nothing(graded, attack):
    assert_blocked(graded, attack)


def test_neighbors_have_what_they_earn(graded):
    assert {name: graded.grades[name].score for name in (HONEST, WRONG, PARTLY)} == {HONEST: 10, WRONG: 0, PARTLY: 3}
    assert graded.grades["says_a_time_to_one_of_two_parsers"].score == 10, "the second honest one"
    assert not any(graded.grades[name].review.needed for name in (HONEST, WRONG, PARTLY)), "their written answers are untouched"


def test_nothing_left_its_sandbox(graded):
    assert len(graded.pages()) > len(graded.grades)
    assert_no_trace(graded)
