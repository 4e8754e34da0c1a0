"""Labs on a real GPU with a real TensorRT, graded as hand-ins are: the reference has all points, the untouched release none."""

from __future__ import annotations

import json

import pytest

from benchmarks.labs import LABS
from course_lib import labs
from course_lib.grading import sandbox
from course_lib.grading.judge import Verdict, judge
from course_lib.labs import Bench, Lab
from tests.gpu.test_tensorrt import pytestmark, target  # noqa: F401  (the same marks, the same fixture)
from tests.labs.untouched import leave_untouched


@pytest.fixture(params=LABS)
def lab(request) -> Lab:
    return labs.find(request.param)


def graded(lab: Lab, folder, bench: Bench) -> Verdict:
    verdict = judge(lab, folder, bench=bench, trusted=bool(sandbox.problem()))
    print(json.dumps(verdict.to_json()))
    return verdict


@pytest.fixture
def bench(target) -> Bench:  # noqa: F811
    return Bench(builder=target, runner=target)


def test_reference_has_full_marks(lab, bench, tmp_path):
    lab.write_reference(tmp_path, opset=bench.opset)
    verdict = graded(lab, tmp_path, bench)
    assert (verdict.fault, verdict.score) == ("", verdict.max_score)


def test_untouched_release_has_none(lab, bench, tmp_path):
    leave_untouched(lab.name, tmp_path)
    verdict = graded(lab, tmp_path, bench)
    assert (verdict.fault, verdict.score) == ("", 0)
