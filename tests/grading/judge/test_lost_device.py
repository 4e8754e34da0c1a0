"""A backend that was there and is gone, such as TensorRT when its GPU is lost: nobody's points depend on it."""

from __future__ import annotations

import pickle

import pytest

from course_lib.engines.worker.parent import _error
from course_lib.errors import NO_ANSWER, PRECISION, PROFILE, WORKER_ENDED, BackendUnavailable, BuildError, WorkerDied
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import Points, Review
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework.criteria import JUDGE_FAILED, NO_REFERENCE, NOT_EXAMINED, UNUSUAL
from tests.grading.conftest import LAB


@pytest.mark.parametrize("losses", [1, 2])
def test_it_is_tried_once_more_and_then_not_graded(tmp_path, monkeypatch, losses):
    left = iter([BackendUnavailable("tensorrt cannot build here: no NVIDIA GPU and driver answer")] * losses)
    examine = type(LAB).examine

    def lost(lab, folder, examiner, only=None):
        if error := next(left, None):
            raise error
        return examine(lab, folder, examiner, only)

    monkeypatch.setattr(type(LAB), "examine", lost)
    verdict = judge(LAB, tmp_path, examiner=Examiner(measure_s=1), trusted=True)
    assert bool(verdict.fault) == (losses == 2) and verdict.score == 0
    assert Review.of(LAB, verdict).points == Points(0, 10 if losses == 2 else 0, 10)
    if verdict.fault:
        assert verdict.fault == "tensorrt cannot build here: no NVIDIA GPU and driver answer"


@pytest.mark.parametrize(("code", "examinations"), [(WORKER_ENDED, 2), (NO_ANSWER, 1), ("", 1)])
def test_a_worker_that_ended_is_tried_once_more_whatever_its_message_says(tmp_path, monkeypatch, code, examinations):
    """What ended it may have nothing to do with the submission; a worker that was stopped for taking too long is not such a case."""
    seen = []

    def examined(lab, folder, examiner, only=None):
        seen.append(folder)
        return Examination(lab.zero_outcomes(WorkerDied("the worker ended, says a learner's error", code=code)))

    monkeypatch.setattr(type(LAB), "examine", examined)
    assert judge(LAB, tmp_path, trusted=True).score == 0
    assert len(seen) == examinations


def test_an_error_keeps_its_code_on_the_way_through_a_worker_and_a_pickle():
    error = _error("BuildError", "what the\nchild says", PROFILE)
    assert (type(error), str(error), error.code) == (BuildError, "what the child says", PROFILE)
    assert _error("PrecisionError", "", "").code == PRECISION and _error("KeyError", "'x'", PROFILE).code == ""
    for excuse in (NO_REFERENCE, WORKER_ENDED, NO_ANSWER, UNUSUAL, NOT_EXAMINED, JUDGE_FAILED, "any other"):
        assert _error("EngineError", "", excuse).code == "", "only the parent may say that"
    assert _error("EngineError", "", "of this lab", ("of this lab",)).code == "of this lab"
    again = pickle.loads(pickle.dumps(WorkerDied("gone", code=WORKER_ENDED)))
    assert (str(again), again.code) == ("gone", WORKER_ENDED)
