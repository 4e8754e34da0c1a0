"""`benchmarks/networks.py`: the whole way on a CPU, continuing, candidates that fail or die, and TensorRT's part on a stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.headline import building, cases, measuring
from course_lib.errors import EngineError, WorkerDied

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "networks.py"


def run(*arguments: object) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_whole_way_and_its_continuation(tmp_path: Path) -> None:
    output = tmp_path / "record.json"
    smoke = ("--smoke", "--folder", tmp_path / "built", "--output", output, "--networks", "bert", "detector")
    run(*smoke)
    record = json.loads(output.read_text())
    for key in ("date", "device", "driver", "versions", "command", "settings"):
        assert record[key], key
    rows = {(row["network"], row["batch"], row["candidate"]): row for row in record["rows"]}
    wide, engines = ["eager fp32", "eager tf32"], ["onnxruntime fp32/TF32", "onnxruntime fp16", "onnxruntime int8"]
    assert list(rows) == [
        *[("BERT-base", batch, name) for batch in (1, 2) for name in (*wide, "eager fp16", *engines)],
        *[("detector", batch, name) for batch in (1, 2) for name in (wide[0], "eager fp16", *engines)],
    ]
    for (network, _, name), row in rows.items():
        assert "failed" not in row and row["ms"] > 0 and row["rounds"] >= 10
        assert network != "detector" or row["mean_ap"] > 0.8
        if name != "eager fp32":
            gain = row["speedup"]["eager fp32"]
            assert gain["low"] <= gain["median"] <= gain["high"]
            low, middle, high = row["alone_ms"]
            assert 0 < low <= middle <= high
            assert row["relative_error"] < (5e-2 if row["dtype"] == "int8" else 1e-2)
    int8, half = (rows["BERT-base", 1, f"onnxruntime {dtype}"]["relative_error"] for dtype in ("int8", "fp16"))
    assert int8 > half > 1e-5
    assert set(rows["BERT-base", 2, "onnxruntime fp32/TF32"]["speedup"]) == set(wide)

    cut = record["rows"][:-5]  # all but the last network's last batch size
    output.write_text(json.dumps({**record, "rows": cut}))
    said = run(*smoke)
    again = json.loads(output.read_text())["rows"]
    assert again[:-5] == cut, "what was there was measured again"
    assert [(row["network"], row["batch"]) for row in again[-5:]] == [("detector", 2)] * 5
    assert '"kept": true' in said and "BERT-base" not in said
    assert run("show", output).count("\n| 1 |") == 11


def test_a_target_that_cannot_build_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    for target, said in (("nobody", "no backend 'nobody'"), ("tensorrt@gone", "no environment 'gone'")):
        command = [sys.executable, str(SCRIPT), "build", "--folder", str(tmp_path), "--target", target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith("error: ") and said in done.stderr
        assert not list(tmp_path.iterdir())


# ---- candidates that fail


class Fake:
    """Stands for `Holder`: answers 1, in a millisecond, but for one candidate that dies, one that fails, and one without an answer."""

    made: list[str]

    def __init__(self, group: str, *_: Any, **__: Any) -> None:
        self.made.append(group)

    def hold(self, network: Any, candidate: Any, folder: Path) -> None:
        if candidate.name == "eager fp16":
            raise WorkerDied("the worker ended during 'load': SIGSEGV")
        if candidate.name == "onnxruntime int8":
            raise EngineError("two\nlines")

    def answer(self, candidate: Any, batch: int, index: int) -> np.ndarray:
        return np.full((batch, 3), np.nan if candidate.name == "onnxruntime fp16" else 1.0)

    def time(self, candidate: Any, batch: int, index: int) -> float:
        return 1.0 if candidate.name == "eager fp32" else 0.5

    def close(self) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder in which everything was built, and processes that are none."""
    Fake.made = []
    monkeypatch.setattr(measuring, "open_holder", Fake)
    np.save(tmp_path / "resnet50.inputs.npy", np.zeros((4, 1)))
    for dtype in ("fp32", "fp16", "int8"):
        (tmp_path / f"resnet50.onnxruntime.{dtype}.json").write_text('{"build_s": 1}')
    return building.Site(tmp_path, "onnxruntime", (1, 2), (), gpu=False, small=True)


def test_a_candidate_that_dies_or_fails_ends_nothing_else(site: Any) -> None:
    network = cases.SMALL[0]
    with measuring.Case(site, network) as case:
        rows = {row["candidate"]: row for row in case.rows(1, 0.05)}
    assert Fake.made == ["torch", "torch", "onnxruntime"], "the group of the dead one begins anew"
    assert {name: row.get("failed") for name, row in rows.items()} == {
        "eager fp32": None,
        "eager fp16": "the worker ended during 'load': SIGSEGV",
        "onnxruntime fp32/TF32": None,
        "onnxruntime fp16": "the answer has values that are not finite",
        "onnxruntime int8": "two lines",
    }
    assert rows["onnxruntime fp32/TF32"]["speedup"] == {"eager fp32": {"median": 2.0, "low": 2.0, "high": 2.0}}
    assert measuring.is_done(list(rows.values()), site, network, 1)
    assert not measuring.is_done(list(rows.values()), site, network, 2)
    assert all("\n" not in measuring.line(row) for row in rows.values())
