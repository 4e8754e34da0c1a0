"""Whose fault a failure is: what a submission's process says is the submission's, whatever it calls it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from course_lib.engines import Environment, Layer, LayerTable, Plan, Worker
from course_lib.engines.cuda.graph import CALLS, REPLAYS
from course_lib.engines.worker import environment
from course_lib.errors import BackendUnavailable, BuildError, EngineError, ExaminerFault, PrecisionError, RecipeError
from course_lib.labs import Examiner
from course_lib.labs.framework import examination
from course_lib.labs.framework.examination import TimedWorker, agree_on_clock
from course_lib.recipe import Recipe

# A worker that answers every question with one error, named in its first argument.
_LIAR = """
import json, os, struct, sys
sys.path.insert(0, sys.argv[-1])
from course_lib.engines.worker import wire
while True:
    asked, _ = wire.receive(0)
    if asked["do"] == "backends":
        wire.send(1, {"backends": [{"name": "onnxruntime", "version": "1.0"}]})
    elif asked["do"] == "infer" and sys.argv[1] == "later" or sys.argv[1] != "later":
        wire.send(1, {"error": sys.argv[2], "message": "it is gone", "code": ""})
    else:
        wire.send(1, {"inputs": [], "outputs": []})
"""
KINDS = ["BackendUnavailable", "EngineError", "ExaminerFault", "PlanError", "RecipeError", "RuntimeError", "SystemExit"]


@pytest.fixture
def liar(tmp_path: Path):
    program = tmp_path / "liar.py"
    program.write_text(_LIAR)
    return lambda when, kind: Environment("liar", (sys.executable, str(program), when, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_process_of_a_submission_claims_no_fault_of_the_examiner(liar, small_ort_plan: Plan, kind: str, when: str):
    def call(ours: bool) -> None:
        with TimedWorker.start(Worker(liar(when, kind)), small_ort_plan, ours=ours) as engine:
            engine.infer({"x": np.zeros(1, np.float32)})

    with pytest.raises(EngineError, match="it is gone"):
        call(ours=False)
    with pytest.raises(ExaminerFault, match="it is gone"):
        call(ours=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compiler_that_holds_a_submission_is_not_believed_either(
    liar, small_onnx: Path, small_ort_plan: Plan, kind: str, monkeypatch
):
    """A process without the submission is asked whether the backend is there, and says that it is."""
    monkeypatch.setattr(environment, "environments", lambda: {"here": environment.HERE, "liar": liar("at once", kind)})
    examiner = Examiner(builder="onnxruntime@liar", runner="onnxruntime@liar")
    with pytest.raises((BuildError, RecipeError), match="it is gone") as raised:  # what labs expect of a build
        examiner.build(small_onnx, Recipe())
    assert not isinstance(raised.value, BackendUnavailable)
    with pytest.raises(EngineError, match="it is gone"), examiner.engine(small_ort_plan):
        pass


def test_a_backend_that_is_really_missing_is_the_examiners_to_repair(liar, small_onnx: Path, monkeypatch):
    monkeypatch.setattr(
        environment, "environments", lambda: {"here": environment.HERE, "liar": liar("at once", "BackendUnavailable")}
    )
    with pytest.raises(BackendUnavailable):
        Examiner(builder="openvino@liar").build(small_onnx, Recipe())


class DeviceWorker:
    """A worker that times its engine itself, by replays or, if it cannot be captured, by calls in a row."""

    def __init__(self, clock: str, ms: float = 0.1) -> None:
        self.clock, self.wanted_clock, self.ms, self.asked = clock, "", ms, []

    def time_ms(self, feeds) -> float:
        self.clock = self.wanted_clock or self.clock
        self.asked.append(self.clock)
        return self.ms

    def infer(self, feeds) -> dict[str, object]:
        self.asked.append("answer")
        return {"y": feeds["x"]}


def test_on_a_gpu_the_devices_clock_is_read_and_the_answer_fetched_afterwards():
    worker = DeviceWorker(REPLAYS, ms=0.25)
    timed = TimedWorker(worker, ours=True, device_clock=True)
    assert timed.timed({"x": 7}) == (0.25, {"y": 7}) and timed.time_ms({"x": 7}) == 0.25
    assert worker.asked == [REPLAYS, "answer", REPLAYS]
    assert TimedWorker(worker, ours=True).timed({"x": 7})[1] == {"y": 7} and worker.asked[-1] == "answer"


@pytest.mark.parametrize(
    ("clocks", "agreed"), [((REPLAYS, REPLAYS, ""), REPLAYS), ((REPLAYS, CALLS, ""), CALLS), (("", ""), "")]
)
def test_both_sides_of_a_race_are_timed_in_the_same_way(clocks, agreed):
    workers = [DeviceWorker(clock) for clock in clocks]
    subjects = [TimedWorker(worker, ours=True, device_clock=True) for worker in workers]
    assert agree_on_clock((subject, {"x": 1}) for subject in subjects) == agreed
    for subject in subjects:
        subject.time_ms({"x": 1})
    assert [worker.asked[-1] for worker in workers] == [agreed if clock else "" for clock in clocks]
    assert agree_on_clock([(TimedWorker(DeviceWorker(REPLAYS), ours=True), {"x": 1})]) == "", "the examiner's clock"


def test_a_plan_without_datatypes_proves_no_precision_and_runs_nevertheless(monkeypatch):
    """TensorRT 8.6 compiles a transformer with dynamic shapes as one layer, and the table does not say in which types."""
    table = LayerTable((Layer("{ForeignNode[...]}", "Myelin"),), {})
    plan = Plan("tensorrt", "8.6.0", b"", "", {}, (), table, 0.0)
    monkeypatch.setattr(examination, "build", lambda *_, **__: plan)
    examiner, half = Examiner(builder="tensorrt", runner="tensorrt"), Recipe(precision="fp16")
    assert examiner.runnable(Path("model.onnx"), half) is plan and examiner.build(Path("model.onnx"), Recipe()) is plan
    with pytest.raises(PrecisionError, match="nothing is proved"):
        examiner.build(Path("model.onnx"), half)


def test_a_backend_that_is_gone_when_an_engine_is_loaded_is_the_machines_fault(liar, small_ort_plan: Plan, monkeypatch):
    gone = {"here": environment.HERE, "liar": liar("at once", "BackendUnavailable")}
    monkeypatch.setattr(environment, "environments", lambda: gone)
    with pytest.raises(BackendUnavailable):
        Examiner(builder="onnxruntime", runner="tensorrt@liar").engine(small_ort_plan)
