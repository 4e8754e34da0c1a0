"""Who passes the self-check passes the grade: 20 gradings of answers that are right, though not the reference's. `make slow-test`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from course_lib import labs
from course_lib.grading import sandbox
from course_lib.grading.judge import judge
from course_lib.labs import lab03_reference
from course_lib.precision import PercentileCalibrator, insert_qdq

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def one_kernel_more(folder: Path) -> None:
    from course_lib.labs.lab02_reference import rewritten
    from course_lib.models import export_onnx

    export_onnx(rewritten(still=["branches"]), folder / "model.onnx", opset=17)


def a_lower_percentile(folder: Path) -> None:
    network, seen = lab03_reference.observed()
    onnx.save(insert_qdq(network, seen.ranges(PercentileCalibrator(99.85))), folder / "model.onnx")


@pytest.mark.parametrize(("name", "change"), [("lab02", one_kernel_more), ("lab03", a_lower_percentile)])
def test_twenty_gradings_one_verdict(name: str, change: Callable[[Path], None], tmp_path):
    lab = labs.find(name)
    lab.write_reference(tmp_path)
    change(tmp_path)
    for _ in range(20):
        verdict = judge(lab, tmp_path, trusted=bool(sandbox.problem()))
        assert verdict.examination is not None, verdict.fault
        print(json.dumps(dict(verdict.examination.figures)), verdict.examination.outcomes[-1].message, flush=True)
        assert verdict.score == verdict.max_score, verdict.examination.outcomes
