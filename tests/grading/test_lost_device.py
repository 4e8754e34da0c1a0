"""A backend that was there and is gone, such as TensorRT when its GPU is lost: nobody's points depend on it."""

from __future__ import annotations

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.grading.judge import judge
from course_lib.labs import Bench
from tests.grading.conftest import LAB


@pytest.mark.parametrize("losses", [1, 2])
def test_it_is_tried_once_more_and_then_not_graded(tmp_path, monkeypatch, losses):
    left = iter([BackendUnavailable("tensorrt cannot build here: no NVIDIA GPU and driver answer")] * losses)
    examine = type(LAB).examine

    def lost(lab, folder, bench, only=None):
        if error := next(left, None):
            raise error
        return examine(lab, folder, bench, only)

    monkeypatch.setattr(type(LAB), "examine", lost)
    verdict = judge(LAB, tmp_path, bench=Bench(measure_s=1), trusted=True)
    assert bool(verdict.fault) == (losses == 2) and verdict.score == 0
    assert verdict.needs_instructor == (losses == 2)
    if verdict.fault:
        assert verdict.fault == "tensorrt cannot build here: no NVIDIA GPU and driver answer"
