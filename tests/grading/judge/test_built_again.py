"""On a GPU, a submission that had only a part of the points for speed is built and examined once more."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import labs
from course_lib.benchmark import Comparison, Measurement
from course_lib.errors import ExaminerFault
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import racing

LAB = labs.find("lab01")


def examination(ms: float) -> Examination:
    """Right answers, and an engine that takes so long where the reference takes 1 ms and PyTorch 2."""
    rng = np.random.default_rng(0)
    means = {"eager": 2.0, "reference": 1.0, "yours": ms}
    times = {name: Measurement(rng.normal(mean, mean / 50, 200)) for name, mean in means.items()}
    comparison = Comparison("eager", times, {}, 1.0, "precise")
    right = (LAB.outcome(task, "full", "right") for task in ("profile", "accuracy"))
    return Examination((*right, racing.outcome(LAB, comparison, LAB.speed, "a hint")), comparison=comparison)


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Points of a submission whose builds have these examinations, and how many of them were used."""

    def run(*builds, on_gpu=True):
        left = list(builds)

        def examine(*_):
            if isinstance(found := left.pop(0), Exception):
                raise found
            return found

        monkeypatch.setattr(type(LAB), "examine", examine)
        monkeypatch.setattr(Examiner, "on_gpu", property(lambda _: on_gpu))
        verdict = judge(LAB, tmp_path, trusted=True)
        return verdict.score, len(builds) - len(left), verdict

    for name in LAB.artifacts:
        (tmp_path / name).write_text("any")
    return run


FAST, SLOW, SLOWER, FAR_TOO_SLOW = (examination(ms) for ms in (1.02, 1.4, 1.6, 2.5))


def test_a_slow_engine_is_built_again_and_the_better_one_counts(judged):
    score, used, verdict = judged(SLOW, FAST)
    assert (score, used) == (10, 2)
    assert verdict.comparison is FAST.comparison, "the verdict can be computed again from what counted"
    assert "built_again" in verdict.provenance


def test_two_slow_engines_have_half_of_the_points(judged):
    score, used, verdict = judged(SLOW, SLOWER)
    assert (score, used) == (8, 2) and verdict.comparison is SLOW.comparison


def test_nothing_is_built_again_at_full_points_or_far_from_them(judged):
    score, used, verdict = judged(FAST, SLOW)
    assert (score, used) == (10, 1) and "built_again" not in verdict.provenance
    assert judged(FAR_TOO_SLOW, FAST)[:2] == (6, 1), "less than a part of the points"


def test_nothing_is_built_again_without_a_gpu(judged):
    assert judged(SLOW, FAST, on_gpu=False)[:2] == (8, 1)


def test_points_of_a_task_without_a_clock_are_not_tried_for_again(judged):
    profile = LAB.outcome("profile", "partial", "tuned for 8", share=0.5)
    wrong = Examination((profile, *FAST.outcomes[1:]), comparison=FAST.comparison)
    assert judged(wrong, FAST)[:2] == (8.5, 1)


@pytest.mark.parametrize("error", [ExaminerFault("the GPU is gone"), RuntimeError("a mistake of the course")])
def test_a_failure_of_the_second_examination_costs_nothing(error, judged):
    score, _, verdict = judged(SLOW, *[error] * 4)
    assert (score, verdict.fault) == (8, "")


def test_the_second_build_cannot_lose_what_the_first_had(judged):
    nothing = Examination(LAB.zero_outcomes("the engine could not be built"))
    assert judged(SLOW, nothing)[:2] == (8, 2)


def test_timed_tasks_are_tasks_of_their_lab():
    timed = {lab.name[:5]: lab.timed_tasks for lab in map(labs.find, labs.names()) if lab.timed_tasks}
    assert list(timed) == ["lab01", "lab04", "lab05", "lab07", "lab10", "lab12", "lab13", "lab15"]
    assert all(labs.find(name).task(task).points for name, tasks in timed.items() for task in tasks)
