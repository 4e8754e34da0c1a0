"""All processes of a submission take their time from one sum: many slow ones cost no more than one."""

from __future__ import annotations

import sys
import time

import pytest

from course_lib import labs
from course_lib.engines import Environment, Worker
from course_lib.engines.worker.allowance import Allowance, Charged, allowance_of, uncharged
from course_lib.errors import WORKER_ENDED, BuildError, EngineError, ExaminerFault, OutOfTime
from course_lib.grading.judge import judging
from course_lib.grading.judge.health import Device
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import onnx_model, runner

LAB = labs.find("lab03")
_SLOW = "import sys, time; time.sleep(0.4); print('{}', flush=True)"


def launcher(seconds: float) -> Charged:
    return Charged(list, Allowance(seconds, "more than {seconds:g} s in all"))


def isolated(paid: Charged) -> None:
    runner.run_isolated([sys.executable, "-c", _SLOW], b"", launcher=paid, time_limit_s=60, max_bytes=100)


def worked(paid: Charged) -> None:
    with Worker(Environment("slow", (sys.executable, "-c", "import time; time.sleep(9)")), launcher=paid) as worker:
        worker.backends()


def examined(paid: Charged) -> None:
    onnx_model.transformed(onnx_model.plain_graph, b"", launcher=paid)


@pytest.mark.parametrize("run", [isolated, worked])
def test_the_sum_of_all_processes_is_bounded(run):
    paid, began = launcher(1.0), time.monotonic()
    with pytest.raises(OutOfTime, match="more than 1 s in all"):
        for _ in range(20):  # each of them is far below its own limit
            run(paid)
    assert 1.0 <= time.monotonic() - began < 3.0
    for later in (isolated, worked):
        began = time.monotonic()
        with pytest.raises(OutOfTime):
            later(paid)
        assert time.monotonic() - began < 0.3, "no further process is waited for"
    with pytest.raises(BuildError, match="more than 1 s in all"):  # and not: it is not an ONNX model
        examined(paid)


def test_a_call_keeps_its_own_limit():
    with pytest.raises(EngineError, match=r"within 0\.1 s"):
        runner.run_isolated([sys.executable, "-c", _SLOW], b"", launcher=launcher(9), time_limit_s=0.1, max_bytes=100)


def test_the_courses_own_work_is_not_charged():
    paid = launcher(0.0)
    ours = Examiner(launcher=paid, bare_launcher=paid).for_ours
    assert allowance_of(ours.launcher).left == allowance_of(ours.bare_launcher).left == float("inf")
    isolated(uncharged(paid))


# Several attempts


class _Repeated:
    """A lab whose examination takes `seconds` and ends as `endings` say, one after the other."""

    def __init__(self, allowance: Allowance, seconds: float, *endings: Examination | Exception) -> None:
        self.allowance, self.seconds, self.endings, self.calls = allowance, seconds, list(endings), 0

    def zero_outcomes(self, message: str, hint: str = ""):
        return LAB.zero_outcomes(message, hint)

    def examine(self, folder, examiner):
        self.calls += 1
        self.allowance.left -= self.seconds
        if isinstance(ending := self.endings.pop(0), Exception):
            raise ending
        return ending


def _found(tier: str, code: str = "") -> Examination:
    return Examination((LAB.outcome("timing", tier, "", code=code),))


def _judged(seconds: float, *endings: Examination | Exception):
    allowance = Allowance(10.0, judging._USED_UP)
    lab = _Repeated(allowance, seconds, *endings)
    return judging._examined(lab, None, Examiner(), allowance, [], Device("test-allowance")), lab.calls


def test_attempts_share_the_allowance():
    ended, other = _found("partial", WORKER_ENDED), _found("full")
    assert _judged(1.0, ended, other) == (other, 2)
    assert _judged(6.0, ended, other) == (ended, 2), "the second one ran out of time: the first one counts"
    assert _judged(11.0, ended) == (ended, 1), "nothing is left for a second one"


def test_measuring_again_takes_no_points_away():
    unclear = _found("inconclusive")
    assert _judged(6.0, unclear, _found("none")) == (unclear, 2)
    assert _judged(1.0, unclear, _found("none")) == (_found("none"), 2)


def test_running_out_of_time_is_never_a_fault_of_the_examiner():
    found, calls = _judged(11.0, ExaminerFault("the reference failed"))
    assert calls == 1 and found.points == 0 and len(found.outcomes) == len(LAB.tasks)
    assert "more than 10 s in all" in found.outcomes[0].message
    with pytest.raises(ExaminerFault):
        _judged(1.0, ExaminerFault("the reference failed"), ExaminerFault("again"))


# Whole submissions


def test_tensorrt_on_a_gpu_has_time_to_build(monkeypatch, tmp_path):
    """It times kernels: whole gradings of references took up to 261 s there."""
    seconds, lab = [], labs.find("lab02")
    monkeypatch.setattr(judging, "Allowance", lambda most, said: seconds.append(most) or Allowance(most, said))
    for on_gpu in (False, True):
        monkeypatch.setattr(Examiner, "on_gpu", on_gpu)
        judging.judge(lab, tmp_path, trusted=True)
    assert seconds[0] == lab.process_s and seconds[1] > 2 * 261


_REFERENCE_S = {"lab03": 2.0, "lab09": 0.3, "lab11": 18.0}  # waited for on two loaded cores, where nothing is timed
_MOST_S = 16.4  # of the other labs, without the two that have more


@pytest.mark.parametrize("name", labs.names())
def test_a_lab_allows_what_its_reference_needs_on_a_slow_machine(name):
    """Four times the reference on a machine that is three times slower; and not the same for labs whose references take seconds."""
    lab = labs.find(name)
    needed = _REFERENCE_S.get(lab.name.partition("_")[0])
    assert lab.process_s >= (12 * needed if needed else 9 * _MOST_S)
    assert lab.process_s <= max(60, 14 * needed) if needed else lab.process_s <= 240
