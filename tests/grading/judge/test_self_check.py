"""`course check` on a learner's folder: an instructor runs it, and nothing in the folder runs as the instructor."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib import labs
from course_lib.cli import bench_files
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge import self_check
from tests.cli.command import Course
from tests.grading.conftest import needs_sandbox

CODE = [
    ("lab05", "calibrator.py"),
    ("lab08", "rotary_plugin.py"),
    ("lab10", "pipeline.py"),
    ("lab12", "server.py"),
]


def submission(folder: Path, name: str, planted: Path) -> Path:
    folder.mkdir()
    (folder / "store.py").write_text("")  # beside the server of lab 12
    (folder / name).write_text(f"open({str(planted)!r}, 'w').write('x')\nraise SystemExit\n")
    return folder


@needs_sandbox
@pytest.mark.parametrize(("lab", "file"), CODE)
def test_nothing_of_a_folder_runs_as_the_one_who_checks_it(course: Course, tmp_path, lab, file):
    assert file in labs.find(lab).artifacts
    planted = tmp_path / "planted"
    done = course("check", lab, submission(tmp_path / "theirs", file, planted))
    assert done.status == 1 and "0 of" in done.out and not planted.exists()
    assert "no sandbox" not in done.err


@needs_sandbox
def test_a_constructor_of_a_kernel_does_not_run_as_the_one_who_checks_it(course: Course, tmp_path):
    """It runs before anything of the examination does."""
    folder, planted = tmp_path / "theirs", tmp_path / "planted"
    folder.mkdir()
    (folder / "rotary.cu").write_text(
        f'#include <cstdio>\nstruct Early {{ Early() {{ std::fopen("{planted}", "w"); }} }} early;\n'
    )
    assert course("check", "lab08", folder).status == 1
    assert not planted.exists()


def test_where_there_is_no_sandbox_it_says_so(course: Course, tmp_path, monkeypatch):
    """And that the tests above can fail: there, the learner's code does run."""
    monkeypatch.setattr(sandbox, "problem", lambda: "bwrap is not installed")
    planted = tmp_path / "planted"
    folder = submission(tmp_path / "theirs", "calibrator.py", planted)
    done = course("check", "lab05", folder)
    assert done.status == 1 and planted.exists()
    assert f"course: no sandbox (bwrap is not installed): what {folder} contains runs with your permissions" in done.err
    assert course("check", "lab05", folder, "--json").document()["sandbox"] == "bwrap is not installed"


def test_files_are_taken_as_the_grader_takes_them(tmp_path):
    lab, secret = labs.find("lab05"), tmp_path / "secret"
    secret.write_text("x")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/calibrator.py").symlink_to(secret)
    examined = self_check.check(lab, tmp_path / "theirs")
    assert examined.points == 0 and all("not a plain file" in outcome.message for outcome in examined.outcomes)


@needs_sandbox
def test_a_plan_is_measured_in_the_sandbox(course: Course, tmp_path, small_ort_plan, small_onnx, monkeypatch):
    """A plan is executable code, and its author wrote the digest beside it."""
    started = []
    real = bench_files.Worker

    def worker(environment, *, launcher=None):
        started.append(launcher is not None)
        return real(environment, launcher=launcher)

    monkeypatch.setattr(bench_files, "Worker", worker)
    plan = tmp_path / "theirs.plan"
    small_ort_plan.save(plan)
    assert course("bench", plan, "-b", "onnxruntime", "--seconds", 1, "--json").document()["shapes"]["image"][0] == 8
    assert course("bench", small_onnx, "-b", "onnxruntime", "--seconds", 1, "--json").status == 0
    assert started == [True, False]
    monkeypatch.setattr(sandbox, "problem", lambda: "bwrap is not installed")
    assert "no sandbox (bwrap is not installed): a plan is executable code" in course("bench", plan, "--seconds", 1).err
