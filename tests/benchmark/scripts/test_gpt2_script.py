"""`benchmarks/gpt2.py`: the whole way on a CPU, TensorRT's part on a stand-in, and candidates that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import benchmarks.gpt2 as gpt2
from benchmarks.gpt2_parts import child, runner
from benchmarks.gpt2_parts.cases import BASELINE, CASES, REFERENCE, SMALL, Case
from course_lib.engines import Plan
from course_lib.errors import CourseError, EngineError, WorkerDied
from course_lib.models.gpt_onnx_opset17 import export_for_tensorrt8

SCRIPT = Path(gpt2.__file__)


def run(*arguments: object) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_whole_way_of_one_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2, "SMALL", SMALL[1:2])
    rows = gpt2.smoke(tmp_path, tmp_path / "record.json")
    assert [row["candidate"] for row in rows] == [BASELINE, "onnxruntime fp16"]
    assert all("failed" not in row and row["ms"] > 0 for row in rows)
    assert gpt2.table(json.loads((tmp_path / "record.json").read_text())["rows"]).count("| decode-2 |") == 2


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


def test_the_candidates_on_a_gpu(site: gpt2.Site) -> None:
    names = [one.name for one in site.available(SMALL[0])]
    assert names[0] == BASELINE and "cuda graph fp16" in names and "compile+cuda graph fp16" in names
    assert [one.name for one in site.available(SMALL[0]) if one.group == "tensorrt"] == [
        "TensorRT fp16 + CUDA graph",
        "TensorRT fp16, cache plugin + CUDA graph",
    ]
    assert not any("plugin" in one.name for one in replace(site, plugin=None).available(SMALL[0]))
    assert {one.group for one in site.available(SMALL[1])} == {"torch"}, "nothing was built for this case"
    assert [(case.name, case.position) for case in CASES] == [
        *((f"decode-{batch}", 512) for batch in (1, 8, 64)),
        ("prefill-1x128", 0),
        ("prefill-1x1024", 0),
    ]


def test_every_process_makes_the_same_inputs_and_no_two_sequences_are_alike() -> None:
    case = replace(SMALL[1], batch=3)
    assert Case.from_wire(json.loads(json.dumps(case.wire()))) == case
    keys, values = case.cache(0, "key"), case.cache(0, "value")
    assert np.array_equal(keys, case.cache(0, "key")) and not np.array_equal(keys, case.cache(1, "key"))
    assert keys.dtype == np.float16 and (keys[:, :, case.position :] == 0).all()
    pairs = [{(k.tobytes(), v.tobytes()) for k, v in zip(keys[i, 0], values[i, 0], strict=True)} for i in range(3)]
    assert pairs[0] != pairs[1] != pairs[2] != pairs[0], "attention does not depend on the order of the pairs"
    assert np.array_equal(case.tokens(3), case.tokens(3)) and not np.array_equal(case.tokens(3), case.tokens(4))


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


def test_the_largest_error_of_the_answers_counts() -> None:
    want = [{"logits": np.ones(4)}, {"logits": np.full(4, 2.0)}]
    assert runner.largest_errors([want[0], {"logits": np.full(4, 2.02)}], want) == {"logits": pytest.approx(0.01)}
    assert runner.largest_errors(want[:1], want) == {"logits": 0.0}
    with pytest.raises(EngineError, match="above"):
        runner.largest_errors([want[0], want[0]], want)


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


def test_a_process_that_dies_while_it_is_timed_takes_its_candidates_with_it(site: gpt2.Site) -> None:
    Fake.trouble = {("TensorRT fp16, cache plugin + CUDA graph", "time"): WorkerDied("SIGSEGV")}
    rows = measured(site)
    assert rows["TensorRT fp16, cache plugin + CUDA graph"]["failed"] == "while it was timed: SIGSEGV"
    assert "its process ended with TensorRT" in rows["TensorRT fp16 + CUDA graph"]["failed"]
    assert rows["compile fp16"]["speedup"][BASELINE]["median"] == 2.0


def test_without_the_baseline_every_row_says_so(site: gpt2.Site) -> None:
    Fake.trouble = {(BASELINE, "answer"): EngineError("wrong")}
    rows = measured(site)
    assert rows[BASELINE]["failed"] == "wrong" and rows["cuda graph fp16"]["failed"] == f"{BASELINE} failed"


def test_without_the_reference_nothing_is_timed(site: gpt2.Site) -> None:
    Fake.trouble = {(REFERENCE.name, "answer"): WorkerDied("out of memory")}
    assert {row["failed"] for row in measured(site).values()} == {"eager fp32 failed: out of memory"}


def test_an_engine_that_was_not_built_has_a_row_that_says_why_or_none(site: gpt2.Site) -> None:
    site.outcome(SMALL[0], "plugin").write_text('{"failed": "no tactic"}')
    built = site.outcome(SMALL[0], "plain").rename(site.folder / "later.json")
    rows = measured(site)
    assert rows["TensorRT fp16, cache plugin + CUDA graph"]["failed"] == "no tactic"
    assert "TensorRT fp16 + CUDA graph" not in rows
    built.rename(site.outcome(SMALL[0], "plain"))
    assert measured(site)["TensorRT fp16 + CUDA graph"]["kernels"] == 7, "the case lacks a row, so it is measured again"


def test_a_build_that_fails_is_one_line_and_is_tried_again(
    site: gpt2.Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.outcome(SMALL[0], "plugin").unlink()
    answers = iter([(3, "", "first\nlast words"), (0, 'log\n{"build_s": 2.0}\n', "")])

    def built(command: list[str], **_: Any) -> Any:
        request = json.loads(Path(command[-1]).read_text())
        assert request["plugins"] == [str(site.plugin)] and request["recipe"]["flags"] == ["tf32", "fp16"]
        return subprocess.CompletedProcess(command, *next(answers))

    monkeypatch.setattr(gpt2.subprocess, "run", built)
    gpt2.build(site, SMALL[:1], float("inf"))
    said = capsys.readouterr().out.splitlines()
    assert "trt_build.py ended with 3: last words" in said[0] and '"kept": true' in said[1]
    gpt2.build(site, SMALL[:1], float("inf"))
    assert '{"build_s": 2.0}' in capsys.readouterr().out.splitlines()[0]
    gpt2.build(site, SMALL[:1], 0.0)
    assert capsys.readouterr().out.count("no time left, call again") == 2
