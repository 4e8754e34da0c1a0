"""Labs on a real GPU with a real TensorRT, graded as submissions are: the reference has all points, the untouched release none."""

import json

import pytest

from benchmarks.labs import LABS
from course_lib import labs
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Examiner, Lab
from tests.gpu.test_tensorrt import pytestmark, target  # noqa: F401  (the same marks, the same fixture)
from tests.labs.untouched import leave_untouched


@pytest.fixture(params=LABS)
def lab(request) -> Lab:
    return labs.find(request.param)


def graded(lab: Lab, folder, examiner: Examiner) -> Verdict:
    verdict = judge(lab, folder, examiner=examiner, trusted=bool(sandbox.problem()))
    print(json.dumps(verdict.to_json()))
    return verdict


@pytest.fixture
def examiner(target) -> Examiner:  # noqa: F811
    return Examiner(builder=target, runner=target)


def test_reference_has_full_marks(lab, examiner, tmp_path):
    lab.write_reference(tmp_path, opset=examiner.opset)
    verdict = graded(lab, tmp_path, examiner)
    assert (verdict.fault, verdict.score) == ("", verdict.max_score)


def test_untouched_release_has_none(lab, examiner, tmp_path):
    leave_untouched(lab.name, tmp_path)
    verdict = graded(lab, tmp_path, examiner)
    assert (verdict.fault, verdict.score) == ("", 0)
