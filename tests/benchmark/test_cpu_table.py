"""The CPU table: rows of a real run on one small network, candidates that fail, and a run that goes on."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks import cpu, readme_tables
from course_lib.benchmark.records import recorded
from course_lib.engines import ModelSource

SMALL = cpu.NETWORKS["small"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """All candidates but the one that compiles for half a minute: in its place a model that does not exist."""
    found = cpu.candidates(SMALL, tmp_path_factory.mktemp("onnx"))
    return {**found, "torch.compile": ModelSource("course_lib.models:nothing")}


def test_every_candidate_has_a_row_and_one_that_fails_says_why(sources, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(cpu, "CHECKED", 64)
    monkeypatch.setattr(cpu, "candidates", lambda *_: sources)
    output = tmp_path / "cpu.json"
    command = ["cpu.py", str(output), "--networks", "small", "--batches", "8", "--seconds", "0.1"]
    monkeypatch.setattr(sys, "argv", command)
    cpu.main()
    data = json.loads(output.read_text())
    rows = {row["candidate"]: row for row in data["rows"]}
    assert tuple(rows) == cpu.CANDIDATES and "nothing" in rows["torch.compile"]["failed"]
    assert rows["ONNX Runtime FP32"]["relative_error"] < 1e-5 < rows["ONNX Runtime INT8"]["relative_error"] < 0.2
    assert rows["ONNX Runtime INT8"]["accuracy"] > 0.9 and rows["eager"]["ms"] > 0
    low, high = (rows["OpenVINO FP32"]["speedup"][bound] for bound in ("low", "high"))
    assert 0 < low <= high and rows["OpenVINO FP32"]["rounds"] == rows["eager"]["rounds"] >= 10
    assert "Linux" in data["driver"] or sys.platform != "linux"
    assert "torch.compile      failed: " in capsys.readouterr().out

    said = readme_tables.networks_cpu(data)
    assert "| network | batch | eager | torch.compile | ONNX Runtime FP32 | ONNX Runtime INT8 | OpenVINO FP32 |" in said
    assert f"| {SMALL.title} | 8 | {rows['eager']['ms']:.2f} ms | failed | " in said and "accuracy" in said


def test_int8_is_int8_and_the_encoder_reads_rows(sources) -> None:
    plan = sources["ONNX Runtime INT8"]
    assert plan.recipe["precision"] == "int8" and b"QuantizeLinear" in plan.data
    images = np.arange(2 * 32 * 32, dtype=np.float32).reshape(2, 1, 32, 32)
    assert np.array_equal(cpu.NETWORKS["encoder"].inputs(images)["tokens"][1, 3], images[1, 0, 3])


def test_litert_ran_in_the_same_race_and_lecture_1_says_what_came_out() -> None:
    rows = {(row["network"], row["batch"], row["candidate"]): row for row in recorded("litert_cpu").rows}
    assert all(row.get("sqnr_db", 200) > 110 for key, row in rows.items() if key[2] == cpu.LITERT)
    first = {cpu.NETWORKS[name].title: name for name in cpu.NETWORKS}
    apart = {}
    for network, name in first.items():
        for batch in (1, 8):
            mine, other = (rows[network, batch, who]["speedup"] for who in (cpu.LITERT, "ONNX Runtime FP32"))
            apart[name, batch] = 1 if mine["low"] > other["high"] else -1 if mine["high"] < other["low"] else 0
    assert (apart["encoder", 1], apart["encoder", 8], apart["small", 8], apart["wide", 8]) == (1, 1, -1, -1)
