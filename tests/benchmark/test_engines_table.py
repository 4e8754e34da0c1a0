"""The engines' table: the whole script on ONNX Runtime, the recipes, and a build that fails."""

from __future__ import annotations

import json
import os
import shutil
import sys

import pytest

from benchmarks import engines
from benchmarks.engine_parts import cases, latency
from benchmarks.engine_parts.cases import DEFAULT, GROUPS, SPECS, SWITCHED, Group
from benchmarks.engine_parts.run import Run
from course_lib.engines.backends.tensorrt.timing_cache import FOLDER_VARIABLE
from course_lib.errors import CourseError


def run(monkeypatch, *command) -> None:
    monkeypatch.setattr(sys, "argv", ["engines.py", *map(str, command)])
    engines.main()


def table(path, name: str) -> list[dict]:
    return [row for row in json.loads(path.read_text())["rows"] if row["table"] == name]


# ---- the whole script


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the ONNX files of all networks."""
    path = tmp_path_factory.mktemp("networks")
    cases.export(Run("onnxruntime", path, path / "x.json", 0.0, 0.0, {}), 17, "small")  # the opset that TensorRT 8.6 reads
    return path


@pytest.fixture
def few(monkeypatch, folder, tmp_path) -> None:
    """Three builds and one group at one batch size; nothing is exported again."""
    shutil.copytree(folder, tmp_path / "engines.plans")
    monkeypatch.setattr(engines, "TIMED", {DEFAULT: SPECS[DEFAULT]})
    monkeypatch.setattr(engines, "OTHERS", {name: SPECS[name] for name in ("tuned at 1", "two profiles, classifier")})
    monkeypatch.setattr(latency, "GROUPS", (Group("profiles", (DEFAULT, "tuned at 1", "tuned at 64"), (2,)),))
    monkeypatch.setenv(FOLDER_VARIABLE, "/nowhere")


def test_the_script_on_onnxruntime_and_a_second_run_that_goes_on(few, monkeypatch, tmp_path, capsys) -> None:
    output = tmp_path / "engines.json"
    command = (output, "--target", "onnxruntime", "--size", "small", "--seconds", "0.3")
    run(monkeypatch, *command)
    first, second = table(output, "latency")
    assert (first["engine"], second["engine"], second["over"], second["batch"]) == (DEFAULT, "tuned at 1", DEFAULT, 2)
    assert first["ms"] > 0 and second["speedup"]["low"] <= second["speedup"]["high"] and second["rounds"] >= 10
    assert table(output, "build")[0]["engine"] == DEFAULT and len(table(output, "build")) == 3
    sources = {row["from"]: row for row in table(output, "cache")}
    assert sources["plan cache"]["outcome"] == "hit" and sources["plan cache"]["build_s"] < sources["timing cache"]["build_s"]
    assert "onnxruntime has no execution contexts" in table(output, "switch")[0]["failed"]
    assert "two profiles, classifier: failed: " in capsys.readouterr().out
    assert os.environ[FOLDER_VARIABLE] == "/nowhere"

    (tmp_path / "engines.plans" / "tuned-at-1.plan").unlink()  # as on another machine
    run(monkeypatch, *command)
    said = capsys.readouterr().out.splitlines()
    assert [text.partition(":")[0] for text in said] == ["build, tuned at 1", "switch, two profiles, classifier"]
    assert len(json.loads(output.read_text())["rows"]) == 3 + 3 + 2 + 1


def test_a_build_that_fails_has_a_row_and_the_others_go_on(few, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(engines, "OTHERS", {"tuned at 1": SPECS["tuned at 1"]})
    output, plain = tmp_path / "engines.json", engines.built

    def built(run, name, jobs):
        if name == DEFAULT:
            raise CourseError("no memory\nleft")
        return plain(run, name, jobs)

    monkeypatch.setattr(engines, "built", built)
    run(monkeypatch, output, "--target", "onnxruntime", "--size", "small", "--seconds", "0.3")
    default, other = table(output, "build")
    assert default == {"table": "build", "engine": DEFAULT, "failed": "CourseError: no memory left"} and other["build_s"] > 0
    assert table(output, "latency") == []


# ---- recipes and graphs


def test_recipes_say_what_the_names_say() -> None:
    assert SPECS["level 5"].recipe().optimization_level == 5 and SPECS["workspace 16 MiB"].recipe().workspace_mib == 16
    three = SPECS["three profiles"].recipe().profiles
    assert [profile["image"].opt[0] for profile in three] == [1, 8, 64]
    for group in GROUPS:  # every batch size has a profile
        for name in group.engines:
            for batch in group.batches:
                assert any(profile["image"].contains((batch, 1, 32, 32)) for profile in SPECS[name].recipe().profiles)
    for name, shapes in SWITCHED.items():  # each shape is in its own profile only
        for place, inputs in enumerate(shapes):
            fits = [all(p[key].contains(shape) for key, shape in inputs.items()) for p in SPECS[name].recipe().profiles]
            assert fits == [place == 0, place == 1]
