"""On a GPU, a class builds from one timing cache, which the grader makes with its own reference before the first submission."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from course_lib import labs
from course_lib.benchmark.records import RESULTS
from course_lib.engines.backends.tensorrt.timing_cache import FOLDER_VARIABLE
from course_lib.engines.cuda import driver
from course_lib.grading.judge import judging
from course_lib.grading.judge import timings as timings_module
from course_lib.grading.judge.health import Device
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner

LAB = labs.find("lab01")


@pytest.fixture
def examined(tmp_path, monkeypatch) -> list[tuple[bool, str | None]]:
    """For each examination, whether it was the reference's, and the folder with timings that its builds saw."""
    seen: list[tuple[bool, str | None]] = []

    def examine(lab, folder, examiner, only=None):
        is_reference = (folder / "model.onnx").read_text() == "reference"
        seen.append((is_reference, os.environ.get(FOLDER_VARIABLE)))
        if is_reference:
            (Path(os.environ[FOLDER_VARIABLE]) / "tensorrt-8.6.0-sm90-H100.timings").write_bytes(b"times")
        return Examination(tuple(lab.outcome(task.id, "full", "right") for task in lab.tasks))

    def write_reference(lab, folder, opset=None):
        for name in lab.artifacts:
            (folder / name).write_text("reference")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(type(LAB), "examine", examine)
    monkeypatch.setattr(type(LAB), "write_reference", write_reference)
    monkeypatch.setattr(Examiner, "on_gpu", property(lambda _: True))
    monkeypatch.setattr(Examiner, "opset", property(lambda _: 17))
    return seen


def submission(folder: Path, content: str = "submitted") -> Path:
    folder.mkdir(exist_ok=True)
    for name in LAB.artifacts:
        (folder / name).write_text(content)
    return folder


def judged(folder: Path, builder: str = "tensorrt") -> dict:
    verdict = judge(LAB, folder, trusted=True, examiner=Examiner(builder=builder), device=Device("test-timings"))
    return dict(verdict.provenance)


def test_the_reference_is_examined_once_and_all_builds_read_its_timings(tmp_path, examined):
    folder = submission(tmp_path / "ada")
    timings = str(tmp_path / "cache" / "tensorrt-course" / "timings")
    provenance = judged(folder)
    assert examined == [(True, timings), (False, timings)]
    judged(folder)
    assert examined[2:] == [(False, timings)]
    assert os.environ.get(FOLDER_VARIABLE) is None
    assert provenance["timings"]["device"] == "test-timings" and "host_busy_percent_before" in provenance["timings"]
    assert "tensorrt-8.6.0-sm90-H100.timings" in provenance["timings"]["sha256"]


def test_the_reference_starts_from_the_recorded_times(tmp_path, examined, monkeypatch):
    monkeypatch.setattr(driver, "model", lambda: "NVIDIA H200")
    monkeypatch.setattr(timings_module, "builder_version", lambda _: "8.6.0")
    timings = judged(submission(tmp_path / "ada"))["timings"]
    (recorded,) = timings["began_with"]  # none of another GPU
    assert recorded == "tensorrt-8.6.0-sm90-NVIDIA_H200.timings"
    assert timings["sha256"][recorded] == hashlib.sha256((RESULTS / "timing_caches" / recorded).read_bytes()).hexdigest()


def test_a_sandbox_shows_the_timings_to_builds_and_not_to_functions(tmp_path, examined, monkeypatch):
    boxes = []
    monkeypatch.setattr(judging, "confined", lambda box: boxes.append(box) or (_ for _ in ()).throw(RuntimeError("enough")))
    monkeypatch.setattr(judging.sandbox, "require", lambda: None)
    with pytest.raises(RuntimeError, match="enough"):
        judge(LAB, submission(tmp_path / "ada"), examiner=Examiner(builder="tensorrt"), device=Device("test-timings"))
    (box,) = boxes
    folder = tmp_path / "cache" / "tensorrt-course" / "timings"
    assert box.readable == (folder,) and box.environment == {FOLDER_VARIABLE: str(folder)}
    assert folder not in box.writable


def test_where_no_tactics_are_timed_there_is_no_cache(tmp_path, examined, monkeypatch):
    assert "timings" not in judged(submission(tmp_path / "ada"), "tensorrt_rtx")
    monkeypatch.setattr(Examiner, "on_gpu", property(lambda _: False))
    assert "timings" not in judged(submission(tmp_path / "bob"))
    assert examined == [(False, None), (False, None)]


def test_a_reference_that_cannot_be_examined_costs_no_submission_anything(tmp_path, examined, monkeypatch):
    def fails(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(type(LAB), "write_reference", fails)
    provenance = judged(submission(tmp_path / "ada"))
    assert provenance["timings"]["failed"] == "OSError: no space left"
    assert [is_reference for is_reference, _ in examined] == [False]


def test_timed_tasks_are_tasks_of_their_lab():
    timed = {lab.name[:5]: lab.timed_tasks for lab in map(labs.find, labs.names()) if lab.timed_tasks}
    assert list(timed) == ["lab01", "lab04", "lab05", "lab07", "lab10", "lab12", "lab13", "lab15"]
    assert all(set(tasks) <= {task.id for task in labs.find(name).tasks} for name, tasks in timed.items())
