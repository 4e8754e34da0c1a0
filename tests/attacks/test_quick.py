"""Some of the attacks, those that win in plain nbgrader, in every test run. All of them: `make attack-test`."""

from __future__ import annotations

import pytest

from tests.attacks.catalogue import attacks
from tests.attacks.scene import HONEST, grade
from tests.attacks.test_attacks import assert_blocked, assert_no_trace
from tests.grading.conftest import needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.timeout(600)]

NAMES = ("calls_home", "edits_the_gradebook", "exits", "forges_points", "patches_the_check", "prints_a_page", "reads_the_graders_memory",
         "rewrites_every_cell", "steals_from_a_neighbour", "submits_links", "is_a_link_to_a_neighbour")  # fmt: skip
QUICK = [attack for attack in attacks() if attack.name in NAMES]


@pytest.fixture(scope="module")
def graded(tmp_path_factory, reference):
    assert len(QUICK) == len(NAMES)
    return grade(tmp_path_factory.mktemp("course"), reference, QUICK)


@pytest.mark.parametrize("attack", QUICK, ids=[attack.name for attack in QUICK])
def test_attacker_gains_nothing(graded, attack):
    assert_blocked(graded, attack)


def test_nothing_is_left_behind_and_the_honest_one_has_full_marks(graded):
    assert_no_trace(graded)
    assert graded.grades[HONEST].score == 10
