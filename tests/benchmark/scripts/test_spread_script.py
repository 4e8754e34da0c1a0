"""Requests spread over processes, on a CPU: what a record holds, and that a network's failure is its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import spread


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *more: str) -> list[dict]:
    output = folder / "record.json"
    command = ["spread.py", str(output), "--folder", str(folder), "--smoke", "--target", "onnxruntime", "--seconds", "0.02"]
    monkeypatch.setattr(sys, "argv", [*command, "--rounds", "10", "--batches", "2", *more])
    spread.main()
    return json.loads(output.read_text())["rows"]


def test_each_number_of_processes_has_a_rate_and_a_gain_over_the_first(monkeypatch, tmp_path):
    rows = run(monkeypatch, tmp_path, "--networks", "resnet50")
    assert [(row["network"], row["batch"], row["gpus"]) for row in rows] == [("ResNet-50", 2, 1), ("ResNet-50", 2, 2)]
    assert rows[0]["gain"]["median"] == 1 and 0 < rows[1]["gain"]["low"] <= rows[1]["gain"]["high"]
    assert rows[0]["largest_difference"] == 0 and min(row["requests_per_second"] for row in rows) > 0
