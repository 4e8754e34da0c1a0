"""The demo of the learner's bundle without its long measuring, which the slow test of the bundle runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from course_lib.cli import demo

ROOT = Path(__file__).resolve().parents[2]


def test_it_builds_writes_the_layers_and_checks_the_untouched_lab(tmp_path, monkeypatch, capsys) -> None:
    shutil.copytree(ROOT / "labs" / "lab01_first_engine", tmp_path / "labs" / "lab01_first_engine")
    measured = {"eager": 0.99, "engine": 0.98}, {"median": 2.0, "low": 1.9, "high": 2.1}
    monkeypatch.setattr(demo, "_measured", lambda plan: measured)
    found = demo.run(tmp_path)
    assert (found["accuracy"], found["speedup"]) == measured
    assert 0 < found["kernels"] < found["ops"]
    assert "Layers of the engine" in Path(found["layers"]).read_text(encoding="utf-8")
    (untouched,) = found["submissions"]
    assert untouched == {"student": "untouched", "points": "0 of 12 points, 2 open"}
    assert "no reference in this bundle" in capsys.readouterr().out
