"""Submissions of labs where a learner's own program is examined. Each lab's tests in tests/labs have more of them."""

from __future__ import annotations

import importlib
import resource
import shutil
from collections import defaultdict

import pytest

from course_lib import labs
from course_lib.grading.isolation.sandbox import Sandbox
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.reports import report
from course_lib.labs import Examiner
from tests.attacks.catalog import attacks
from tests.grading.conftest import needs_sandbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OTHERS = [pytest.param(attack, id=attack.name) for attack in attacks() if attack.lab != "lab01"]
MOST_KEPT = 1 << 30  # bytes that the judge's own process may grow by


@needs_sandbox
@pytest.mark.parametrize("attack", OTHERS)
def test_attacker_earns_no_more_than_its_honest_part_and_is_told_why(tmp_path, attack):
    if attack.needs and shutil.which(attack.needs) is None:
        pytest.skip(f"{attack.needs} is not installed")
    lab = labs.find(attack.lab)
    lab.write_reference(tmp_path)
    if attack.make:
        module, _, function = attack.make.partition(".")
        getattr(importlib.import_module(f"tests.attacks.{module}"), function)(tmp_path, None)
    else:
        (tmp_path / attack.file).write_text(attack.source)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    examined = lab.examine(
        tmp_path,
        Examiner(launcher=Sandbox().command, bare_launcher=Sandbox(course=False, packages=lab.packages).command, measure_s=2),
        only=attack.task,
    )
    (outcome,) = [found for found in examined.outcomes if found.task.id == attack.task]
    assert outcome.points == attack.score
    assert attack.said in outcome.message and outcome.message.isprintable()
    provenance = defaultdict(str, backends={}, sha256={})
    assert report.page(lab, Verdict(lab.name, examined.outcomes, "", provenance), "ada").encode()
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10 < MOST_KEPT
