"""Who passes the self-check passes the grade: 20 gradings of answers that are right, most of them not the reference's. `make slow-test`.

And ten checks of each reference while another process keeps a core busy: the same points, or "inconclusive" with the criterion named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from course_lib import labs
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner, Outcome
from course_lib.labs.lab05_calibration import reference
from course_lib.labs.lab07_dynamic_shapes import given
from course_lib.labs.lab07_dynamic_shapes import reference as lab07_reference
from course_lib.labs.lab15_capstone import reference as lab15_reference
from course_lib.precision import PercentileCalibrator, insert_qdq
from course_lib.recipe import Recipe
from tests.labs.submissions import edit, table
from tests.labs.submissions import lab03 as lab03_submissions
from tests.labs.submissions import lab06 as lab06_submissions
from tests.labs.submissions import lab13 as lab13_submissions
from tests.labs.submissions import lab14 as lab14_submissions
from tests.labs.submissions import lab16 as lab16_submissions
from tests.labs.submissions.lab04 import with_layer_norms

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def the_reference(folder: Path) -> None:
    """Nothing else: a learner who writes the same passes, too."""


def one_kernel_more(folder: Path) -> None:
    from course_lib.labs.lab02_fusion.reference import rewritten
    from course_lib.models import export_onnx

    export_onnx(rewritten("reference", still=["layout"]), folder / "model.onnx", opset=17)


def a_percentile(folder: Path) -> None:
    network, seen = reference.observed()
    onnx.save(insert_qdq(network, seen.ranges(PercentileCalibrator(99.99))), folder / "model.onnx")


def layer_norms(folder: Path) -> None:
    onnx.save(with_layer_norms(), folder / "model.onnx")


def other_boxes(folder: Path) -> None:
    boxes = lab07_reference.cheapest(lab07_reference.by_tokens(100.0), given.yesterday("reference").counts())
    given.recipe(*boxes).save(folder / "recipe.toml")


def threads(folder: Path) -> None:
    (folder / "pipeline.py").write_text(table("lab10")["threads"])


def another_server(folder: Path) -> None:
    for name, text in table("lab12")["another"].items():
        (folder / name).write_text(text)


def three_streams(folder: Path) -> None:
    (folder / "serving_loop.py").write_text(table("lab09")["three_streams"])


def other_converter(folder: Path) -> None:
    edit(folder, table("lab11")["another"]["changes"])


def other_settings(folder: Path) -> None:
    found = lab15_reference.SETTINGS.model_copy(update={"queue": 3, "drop": "newest"})
    (folder / "settings.toml").write_text(found.dumps())


def another_attention(folder: Path) -> None:
    (folder / "decoder.onnx").write_bytes(lab13_submissions.ANOTHER())
    recipe = Recipe.load(folder / "recipe.toml")
    recipe.model_copy(update={"profiles": recipe.profiles[::-1]}).save(folder / "recipe.toml")


def other_forms(folder: Path) -> None:
    lab14_submissions.other_forms(folder)


ANSWERS = {
    "lab01": the_reference,
    "lab02": one_kernel_more,
    "lab03": lab03_submissions.another,
    "lab04": layer_norms,
    "lab05": a_percentile,
    "lab06": lab06_submissions.another,
    "lab07": other_boxes,
    "lab08": the_reference,
    "lab09": three_streams,
    "lab10": threads,
    "lab11": other_converter,
    "lab12": another_server,
    "lab13": another_attention,
    "lab14": other_forms,
    "lab15": other_settings,
    "lab16": lab16_submissions.write,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_twenty_gradings_one_verdict(name: str, tmp_path: Path):
    lab = labs.find(name)
    lab.write_reference(tmp_path)
    ANSWERS[name](tmp_path)
    for _ in range(20):
        verdict = judge(lab, tmp_path, trusted=bool(sandbox.problem()))
        assert not verdict.fault, verdict.fault
        print(json.dumps(dict(verdict.figures)), verdict.outcomes[-1].message, flush=True)
        lost = [f"{outcome.task.id}: {outcome.message}" for outcome in verdict.outcomes if outcome.tier != "full"]
        assert verdict.score == verdict.max_score, "; ".join(lost)


@pytest.fixture
def busy_core() -> Iterator[None]:
    """Another process computes without a pause for as long as the test takes."""
    with subprocess.Popen([sys.executable, "-c", "while True: sum(range(10**6))"]) as process:
        yield
        process.kill()


def settled(outcome: Outcome) -> bool:
    """Full points, or a named criterion that the busy machine left open."""
    open_criteria = [one for one in outcome.criteria if one.met is None]
    named = bool(open_criteria) and all(one.name in outcome.message for one in open_criteria[:1])
    return outcome.tier == "full" or (outcome.tier == "inconclusive" and named)


@pytest.mark.parametrize("name", ANSWERS)
def test_ten_checks_under_load_give_the_same_points_or_none_by_luck(name: str, tmp_path: Path, busy_core: None):
    lab = labs.find(name)
    lab.write_reference(tmp_path)
    for _ in range(10):
        found = lab.examine(tmp_path, Examiner())
        print(json.dumps([(one.task.id, one.tier, one.points) for one in found.outcomes]), flush=True)
        lost = [f"{one.task.id}: {one.tier}, {one.message}" for one in found.outcomes if not settled(one)]
        assert not lost, "; ".join(lost)
