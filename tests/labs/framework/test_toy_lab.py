"""A lab of another distribution: installed, it is found, checked and judged, and nothing of the course was edited for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.grading.isolation import sandbox


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has the toy lab installed."""
    site = tmp_path / "site"
    (site / "toy_lab-1.0.dist-info").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("toy_lab.py"), site)
    (site / "toy_lab-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-lab\nVersion: 1.0\n")
    (site / "toy_lab-1.0.dist-info" / "entry_points.txt").write_text("[course_lib.labs]\nlab42_answer = toy_lab\n")
    return {**os.environ, "PYTHONPATH": str(site)}


def test_it_is_found_and_checked(installed: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "answer.txt").write_text("41")
    command = [sys.executable, "-m", "course_lib", "check", "lab42", str(tmp_path), "--json"]
    done = subprocess.run(command, env=installed, capture_output=True, text=True)
    (task,) = json.loads(done.stdout)["tasks"]
    assert (task["task"]["id"], task["points"], task["hint"]) == ("answer", 0, "Multiply 6 by 7.")


@pytest.mark.skipif(bool(sandbox.problem()), reason=sandbox.problem())
def test_it_is_judged_like_any_other(installed: dict[str, str], tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from course_lib import labs
from course_lib.grading.judge.judging import judge
lab, folder = labs.find("lab42"), Path(sys.argv[1])
print(judge(lab, folder).score)
lab.write_reference(folder)
print(judge(lab, folder).score, labs.names()[-1])
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=installed, capture_output=True, text=True)
    assert done.stdout.split() == ["0.0", "2.0", "lab42_answer"], done.stderr[-500:]
