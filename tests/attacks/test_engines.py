"""Engines that cheat and models that attack: what the judge makes of them, one after the other, and of an honest engine at the end.

Their notebooks do nothing, so the judge gets their files without nbgrader's way around it, which `test_attacks` goes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.reports import report
from tests.attacks.active import active_content
from tests.attacks.catalog import Attack, attacks
from tests.attacks.scene import SECRET, Scene
from tests.grading.conftest import LAB, needs_sandbox

pytestmark = [needs_sandbox, pytest.mark.slow, pytest.mark.timeout(1800)]
ENGINES = [pytest.param(attack, id=attack.name) for attack in attacks() if attack.by_engine]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, reference: Path) -> Scene:
    scene = Scene(Classroom(tmp_path_factory.mktemp("course")), reference)
    scene.secret.write_text(SECRET)
    return scene


def judged(scene: Scene, attack: Attack, folder: Path) -> Verdict:
    for name in LAB.artifacts if attack.honest_files else ():
        shutil.copyfile(scene.reference / name, folder / name)
    scene.craft(attack, folder)
    return judge(LAB, folder)


@pytest.mark.parametrize("attack", ENGINES)
def test_engine_gets_what_its_honest_part_earns(scene, tmp_path, attack):
    verdict = judged(scene, attack, tmp_path)
    page = tmp_path / "report.html"
    page.write_text(report.page(LAB, verdict, attack.name), encoding="utf-8")
    assert (verdict.score, verdict.fault) == (attack.score, ""), verdict.to_json()["tasks"]
    assert attack.said in page.read_text()
    assert active_content(page) == set()
    assert SECRET not in page.read_text()


def test_honest_engine_has_full_marks_after_them(reference):
    verdict = judge(LAB, reference)
    assert verdict.score == verdict.max_score == 10, verdict.to_json()["tasks"]
