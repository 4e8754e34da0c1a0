"""Workers answer or die in bounded time, and whatever one of them does costs its own engine only."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from course_lib import engines
from course_lib.engines import Environment, ModelSource, Plan, TensorInfo, Worker
from course_lib.engines.worker import wire
from course_lib.errors import BackendUnavailable, BuildError, EngineError, WorkerDied
from course_lib.recipe import Recipe
from tests.bare import bare_python as interpreter_with
from tests.one_line import one_line

IMAGE = {"image": np.linspace(0, 1, 3 * 1024, dtype=np.float32).reshape(3, 1, 32, 32)}
TORCH = ModelSource("course_lib.models:classifier", ("small",))


def _gone(pid: int) -> bool:
    """Neither running nor a zombie."""
    return not Path(f"/proc/{pid}").exists()


# ---- what honest workers do


def test_two_workers_take_turns(small_ort_plan: Plan) -> None:
    with Worker() as ours, Worker() as torchs:
        ours.load(small_ort_plan)
        torchs.load(TORCH)
        assert ours.inputs == torchs.inputs == (TensorInfo("image", (-1, 1, 32, 32), "float32"),)
        assert [info.name for info in ours.outputs] == [info.name for info in torchs.outputs] == ["logits"]
        for batch in (1, 2, 3):
            feeds = {"image": IMAGE["image"][:batch]}
            have, want = ours.infer(feeds)["logits"], torchs.infer(feeds)["logits"]
            assert have.shape == (batch, 10) and np.abs(have - want).max() < 1e-4 * np.abs(want).max()
            assert ours.time_ms(feeds) > 0 and torchs.time_ms(feeds) > 0


def test_an_error_is_an_answer_and_the_worker_goes_on(small_ort_plan: Plan) -> None:
    with Worker() as worker:
        worker.load(small_ort_plan)
        for feeds, word in (
            ({}, "missing input"),
            ({"image": np.zeros((40, 1, 32, 32), np.float32)}, "outside every profile"),
            ({"image": np.zeros((1, 1, 32, 32), np.float64)}, "needs dtype float32, found float64"),
        ):
            with pytest.raises(EngineError, match=word) as raised:
                worker.infer(feeds)
            assert type(raised.value) is EngineError
        assert worker.infer(IMAGE)["logits"].shape == (3, 10)


def test_a_call_before_an_engine_is_loaded_is_an_error() -> None:
    with Worker() as worker:
        for ask in (worker.infer, worker.time_ms):
            with pytest.raises(EngineError, match="no engine: load one first"):
                ask(IMAGE)
        assert worker.backends()


def test_what_is_printed_in_a_worker_does_not_disturb_it(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(
        "import os, sys\nprint('hello', flush=True); os.write(1, b'x' * 100)\n"
        "from course_lib.models import classifier\n"
        "def make():\n    print('hello again', flush=True)\n    return classifier('small')\n"
    )
    environment = Environment("chatty", ("env", f"PYTHONPATH={tmp_path}", sys.executable))
    with Worker(environment) as worker:
        worker.load(ModelSource("chatty:make"))
        assert worker.infer(IMAGE)["logits"].shape == (3, 10)


def test_a_module_in_the_folder_of_the_learner_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit('the learner was here')")
    monkeypatch.chdir(tmp_path)
    with Worker() as worker:
        assert worker.backends()


# ---- environments


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter with numpy and ONNX Runtime."""
    return interpreter_with(tmp_path_factory.mktemp("bare"), "numpy", "onnxruntime")


def test_a_worker_in_a_named_environment(
    bare_python: str, small_onnx: Path, service_recipe: Recipe, small_ort_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f" bare = {bare_python} ;; other=/nowhere/python")
    assert list(engines.environments()) == ["here", "bare", "other"]
    name, environment = engines.split_target("onnxruntime@bare")
    assert name == "onnxruntime"
    plan = engines.build(small_onnx, service_recipe, backend="onnxruntime@bare")
    assert plan.data == small_ort_plan.data
    assert plan.layers.operators == small_ort_plan.layers.operators  # though there is no onnx package there
    with Worker(environment) as bare, Worker() as here:
        bare.load(plan)
        here.load(small_ort_plan)
        assert np.array_equal(bare.infer(IMAGE)["logits"], here.infer(IMAGE)["logits"])
        found = {row["name"]: row for row in bare.backends()}
    assert found["onnxruntime"]["no_run"] == "" and "not installed" in found["torch"]["no_run"]
    with pytest.raises(BackendUnavailable, match="not installed"):
        engines.build(small_onnx, service_recipe, backend="tensorrt_rtx@bare")
    with pytest.raises((BuildError, BackendUnavailable), match="cannot start '/nowhere/python'"):
        engines.build(small_onnx, service_recipe, backend="onnxruntime@other")


@pytest.mark.parametrize("value", ["trt8", "trt8=", "a=b;c"])
def test_a_variable_that_names_no_environment(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_ENVIRONMENTS", value)
    with pytest.raises(BackendUnavailable, match="COURSE_ENVIRONMENTS: expected name=command"):
        engines.environments()


# ---- workers that are not honest

PRELUDE = """
import json, os, struct, sys, time
def say(header, *raw):
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    os.write(1, struct.pack("<Q", len(text)) + text + b"".join(raw))
def array(shape, dtype="float32"):
    return {"arrays": [{"name": "a", "dtype": dtype, "shape": shape}]}
"""


def _script(code: str) -> Environment:
    """An interpreter that runs `code` whatever it is asked to do."""
    return Environment("script", (sys.executable, "-S", "-c", PRELUDE + code))


CALLS: dict[str, Callable[[Worker], Any]] = {
    "backends": lambda worker: worker.backends(),
    "build": lambda worker: worker.build("onnxruntime", Path("model.onnx"), {}, timeout_s=worker.timeout_s),
    "load": lambda worker: worker.load(TORCH),
    "infer": lambda worker: worker.infer(IMAGE),
    "time": lambda worker: worker.time_ms(IMAGE),
}


DATA = "'arrays': [{'name': 'data', 'dtype': 'uint8', 'shape': [0]}]"
DISHONEST = [  # what it does, when it is asked for what, and what is said of it; `tests/fuzz` reads any plan and any message
    ("sys.exit(3)", "infer", ["ended", "exit status 3", "last words: none"]),
    ("sys.exit('out of luck')", "infer", ["exit status 1", "out of luck"]),
    ("os.kill(os.getpid(), 11)", "infer", ["SIGSEGV"]),
    ("os.write(1, b'abc'); os._exit(0)", "infer", ["ended", "exit status 0"]),
    *[("pass", call, ["no answer", "0.5 s"]) for call in CALLS],
    ("while True: os.write(1, b'x' * 65536)", "infer", []),
    ("os.write(1, struct.pack('<Q', 2**63))", "backends", []),
    ("say(array([1], 'object'))", "backends", []),
    ("say(b'hello')", "backends", []),
    (f"say({{'backends': 5, {DATA}}})", "backends", ["invalid answer"]),
    (f"say({{'plan': {{'layers': {{'layers': []}}, 'backend': 'x', 'surprise': 1}}, {DATA}}})", "build", ["invalid answer"]),
    (f"say({{'inputs': [{{'name': 'x', 'shape': 5, 'dtype': ''}}], 'outputs': [], {DATA}}})", "load", ["invalid answer"]),
    (f"say({{'ms': 'soon', {DATA}}})", "time", ["invalid answer"]),
]


@pytest.mark.parametrize(("code", "call", "words"), DISHONEST)
def test_a_worker_that_is_not_honest_costs_its_own_engine_only(code: str, call: str, words: list[str]) -> None:
    started = time.monotonic()
    with Worker(_script(f"{code}\ntime.sleep(60)"), timeout_s=0.5 if "no answer" in words else 5) as worker:
        pid = worker._process.pid
        with one_line(WorkerDied, *words):
            CALLS[call](worker)
    assert time.monotonic() - started < 20 and _gone(pid)


def test_an_error_from_a_worker_is_one_short_line() -> None:
    code = "say({'error': 'BuildError', 'message': 'first\\nsecond ' * 9999, 'arrays': []}); time.sleep(60)"
    with Worker(_script(code)) as worker, one_line(BuildError, longest=2000):
        worker.backends()


# ---- nothing is left


def test_what_a_worker_started_ends_with_it(tmp_path: Path) -> None:
    code = f"import subprocess; child = subprocess.Popen(['sleep', '60']); open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid)); "
    with Worker(_script(code + "say({'backends': [], 'arrays': []}); time.sleep(60)")) as worker:
        worker.backends()
        child = int((tmp_path / "pid").read_text())
        assert not _gone(child)
    assert _ended(child)


def _ended(pid: int) -> bool:
    """Ended, though the process that adopted it may not have taken notice yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_worker_ends_when_its_parent_does(tmp_path: Path) -> None:
    import subprocess

    code = "from course_lib.engines import Worker; w = Worker(); w.backends(); print(w._process.pid, flush=True); import os; os._exit(0)"
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    deadline = time.monotonic() + 10
    while not _ended(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _ended(pid)


# ---- the wire

DTYPES = sorted(wire._DTYPES)
arrays = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
)


def _round_trip(header: dict[str, Any], sent: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    reader, writer = os.pipe()
    try:
        wire.send(writer, header, sent)
        return wire.receive(reader, time.monotonic() + 5)
    finally:
        os.close(reader)
        os.close(writer)


def _same(have: np.ndarray, want: np.ndarray) -> None:
    assert have.dtype == want.dtype and have.shape == want.shape
    assert have.tobytes() == want.tobytes()


@settings(deadline=None)
@given(st.dictionaries(st.text(), arrays, max_size=4))
def test_arrays_survive_the_wire(sent: dict[str, np.ndarray]) -> None:
    header, received = _round_trip({"do": "infer"}, sent)
    assert header == {"do": "infer"} and list(received) == list(sent)
    for name, array in sent.items():
        _same(received[name], array)


@pytest.mark.parametrize("view", [np.s_[::2], np.s_[::-1], np.s_[:, 1:3], np.s_[..., ::3]], ids=str)
def test_views_survive_the_wire(view: Any) -> None:
    whole = np.arange(120, dtype=np.float32).reshape(6, 4, 5)
    for want in (whole[view], whole.T[view], np.asfortranarray(whole)[view], np.broadcast_to(whole[0], (6, 4, 5))[view]):
        _same(_round_trip({}, {"a": want})[1]["a"], want)
