"""`benchmarks/gpt2.py`: the whole way on a CPU, TensorRT's part on a stand-in, and candidates that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmarks.gpt2 as gpt2
from benchmarks.gpt2_parts import child, runner
from benchmarks.gpt2_parts.cases import BASELINE, REFERENCE, SMALL, Case
from benchmarks.gpt2_parts.onnx_opset17 import export_for_tensorrt8
from course_lib.engines import Plan
from course_lib.errors import CourseError, EngineError, WorkerDied

SCRIPT = Path(gpt2.__file__)


def run(*arguments: object) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_whole_way_and_its_continuation(tmp_path: Path) -> None:
    output = tmp_path / "record.json"
    smoke = ("--smoke", "--folder", tmp_path / "built", "--output", output)
    run(*smoke)
    record = json.loads(output.read_text())
    for key in ("date", "device", "driver", "versions", "command", "settings"):
        assert record[key], key
    names = [(case.name, name) for case in SMALL for name in (BASELINE, "onnxruntime fp16")]
    assert [(row["case"], row["candidate"]) for row in record["rows"]] == names
    for row in record["rows"]:
        assert row["ms"] > 0 and row["rounds"] >= 10
        assert 0 < max(row["relative_errors"].values()) < 2e-3 and set(row["relative_errors"]) == {"logits", "key", "value"}
        if row["candidate"] != BASELINE:
            gain = row["speedup"][BASELINE]
            assert gain["low"] <= gain["median"] <= gain["high"]

    kept = record["rows"][:-1]
    output.write_text(json.dumps({**record, "rows": kept}))
    assert SMALL[0].name not in run(*smoke).partition("exported")[2].partition("eager")[2]
    again = json.loads(output.read_text())["rows"]
    assert again[:4] == kept[:4], "what was there was measured again"
    assert [(row["case"], row["candidate"]) for row in again] == names
    assert run("show", output).count(f"| {SMALL[0].name} |") == 2


def test_a_command_without_what_it_needs_is_rejected(tmp_path: Path) -> None:
    for arguments, code, said in (
        ((), 2, "choose build, measure or show"),
        (("build",), 2, "build needs --folder"),
        (("measure", "--folder", tmp_path / "new"), 1, "measure needs an NVIDIA GPU"),
    ):
        done = subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


# ---- TensorRT's part


def reference(case: Case) -> list[dict[str, np.ndarray]]:
    """PyTorch's answers in FP32 to inputs 0 and 3, and to 1 one position later."""
    held = child.Held()
    held.begin(case.wire())
    held.load(REFERENCE.name, REFERENCE.group, REFERENCE.variant, "", "fp32", "")
    return [held.infer(REFERENCE.name, index, ahead) for index, ahead in ((3, 0), (0, 0), (1, int(case.is_step)))]


# a prompt of the plain form has no cache among its inputs, which could be bound in place
BOUND = [(case, in_place) for case in SMALL for in_place in (False, True) if case.is_step or not in_place]


@pytest.mark.parametrize(("case", "in_place"), BOUND, ids=[f"{case.name}, in place: {place}" for case, place in BOUND])
def test_a_plan_runs_as_a_graph_and_answers_as_pytorch_does(case: Case, in_place: bool, tmp_path: Path, trt: Any) -> None:
    """The plain form serves for both ways to bind the cache, because the stand-in knows no plugin."""
    from benchmarks.gpt2_parts.torch_steps import network
    from benchmarks.headline import trt_build

    wanted = reference(case)
    model, plan = tmp_path / "model.onnx", tmp_path / "model.plan"
    exported = export_for_tensorrt8(network(case.shape), "plain", new=case.new, batch=case.batch, length=case.length)
    model.write_bytes(exported.SerializeToString())
    recipe = gpt2.Recipe().wire()  # version 10 types the network as the graph says
    trt_build.build(trt, {"model": str(model), "plan": str(plan), "recipe": recipe, "calibration": None})
    assert Plan.load(plan).backend == "tensorrt"
    subject = child.TensorRTSubject(case, plan, in_place)
    for index, want in zip((3, 0), wanted, strict=False):
        assert subject.time_ms(7) >= 0
        assert max(runner.errors(subject.answer(index, 0), want).values()) < 5e-3
    if in_place:
        assert max(runner.errors(subject.answer(1, 1), wanted[2]).values()) < 5e-3
        with pytest.raises(EngineError, match="above"):
            runner.errors(subject.answer(1, 0), wanted[2])
    if case.is_step:
        addresses = {name: int(subject._memory[name]) for name in ("past_key_0", "present_key_0")}
        assert (len(set(addresses.values())) == 1) == in_place


def test_an_answer_that_is_wrong_is_rejected() -> None:
    want = {"logits": np.ones((2, 3)), "key": np.ones(4)}
    assert runner.errors({"logits": np.ones((2, 3)), "key": np.full(4, 1.01)}, want) == {
        "logits": 0.0,
        "key": pytest.approx(0.01),
    }
    for answer, said in (
        ({"logits": np.ones((2, 3))}, "answer's key should have shape"),
        ({"logits": np.ones((3, 2)), "key": np.ones(4)}, "logits should have shape"),
        ({"logits": np.full((2, 3), np.nan), "key": np.ones(4)}, "not finite"),
        ({"logits": np.ones((2, 3)), "key": np.full(4, 1.03)}, "key 3.0e-02 are above 0.02"),
    ):
        with pytest.raises(EngineError, match=said):
            runner.errors(answer, want)


# ---- candidates that fail


class Fake:
    """Stands for `Runner`. `trouble` has an error by name of a candidate and of what it is asked for."""

    trouble: dict[tuple[str, str], CourseError]
    begun: list[str]

    def __init__(self, *_: Any) -> None:
        self.begun.append("process")

    def begin(self, case: Case) -> None:
        self.begun.append(case.name)

    def hold(self, candidate: Any, file: Any) -> None:
        self._ask(candidate, "hold")

    def answers(self, candidate: Any, case: Case) -> list[dict[str, np.ndarray]]:
        self._ask(candidate, "answer")
        return [{"logits": np.ones((1, 3))}]

    def time(self, candidate: Any, index: int) -> float:
        if index == 5:
            self._ask(candidate, "time")
        return 1.0 if candidate.name == BASELINE else 0.5

    def close(self) -> None:
        self.begun.append("closed")

    def _ask(self, candidate: Any, what: str) -> None:
        if error := self.trouble.get((candidate.name, what)):
            raise error


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> gpt2.Site:
    """A GPU's candidates for one case, whose plans were built."""
    Fake.trouble, Fake.begun = {}, []
    monkeypatch.setattr(gpt2, "Runner", Fake)
    monkeypatch.setattr(gpt2, "machine", lambda target: {"target": target})
    found = gpt2.Site(tmp_path, "onnxruntime", tmp_path / "plugin.so", gpu=True)
    for form in ("plain", "plugin"):
        found.outcome(SMALL[0], form).write_text(json.dumps({"build_s": 3.0, "plan_mb": 1.0, "kernels": 7}))
        found.plan(SMALL[0], form).touch()
        found.model(SMALL[0], form).touch()
    return found


def measured(site: gpt2.Site, *, retry: bool = False) -> dict[str, Any]:
    rows = gpt2.measure(site, SMALL[:1], 0.05, float("inf"), site.folder / "record.json", retry=retry)
    assert [row["candidate"] for row in rows] == [one.name for one in site.available(SMALL[0])]
    for row in rows:
        assert "\n" not in gpt2.line(row)
    return {row["candidate"]: row for row in rows}


def test_what_fails_has_a_row_that_says_so_and_ends_nothing_else(site: gpt2.Site) -> None:
    Fake.trouble = {
        ("onnxruntime fp16", "hold"): EngineError("no CUDA\nprovider"),
        ("compile fp16", "time"): EngineError("the device was at work"),
        ("TensorRT fp16 + CUDA graph", "answer"): WorkerDied("the worker ended"),
    }
    rows = measured(site)
    assert rows["onnxruntime fp16"]["failed"] == "no CUDA provider"
    assert rows["compile fp16"]["failed"] == "while it was timed: the device was at work"
    assert rows["TensorRT fp16 + CUDA graph"]["failed"] == "the worker ended"
    plugin = rows["TensorRT fp16, cache plugin + CUDA graph"]
    assert plugin["speedup"]["eager fp16"]["median"] == 2.0 and plugin["kernels"] == 7
    assert set(plugin["speedup"]) == {"eager fp16", "cuda graph fp16", "compile+cuda graph fp16"}
    assert Fake.begun.count("process") == 4 == Fake.begun.count("closed"), "TensorRT's process began anew"
    Fake.trouble = {}
    assert measured(site) == rows, "a row that says why it failed is a row"
    assert not any("failed" in row for row in measured(site, retry=True).values())
