"""One measurement at a time on a device: graders of several users, and a learner's check."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.benchmark import device_lock
from course_lib.errors import CourseError
from course_lib.grading.judge import self_check
from course_lib.grading.judge.health import Device
from course_lib.labs import Examination
from tests.labs.framework.toy_lab import lab as toy_lab

_HOLDS = """
import os, sys
from pathlib import Path
from course_lib.benchmark import device_lock
device_lock._SHARED = (Path(sys.argv[1]),)
if len(sys.argv) > 2:
    os.setuid(int(sys.argv[2]))
os.umask(0o077)
with device_lock.alone("test"):
    print("in", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def shared(tmp_path, monkeypatch) -> Path:
    """In place of /run/lock."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr(device_lock, "_SHARED", (tmp_path / "missing", folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return folder


def _waits_for_the_other(shared: Path, measure, *user: str, asked: Callable[[], bool] = lambda: True) -> None:
    """Whether a measurement begins only when the one of another process has ended. `asked` tells that it has reached the lock."""
    code = [sys.executable, "-c", _HOLDS, str(shared), *user]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "in\n"
        done = threading.Event()
        thread = threading.Thread(target=measure, args=(done.set,))
        thread.start()
        while not asked():
            thread.join(0.05)
            assert thread.is_alive()
        assert not done.wait(0.3)
        other.stdin.close()
        assert done.wait(30)
        thread.join()


@pytest.mark.parametrize("cache", ["mine", "yours"])
def test_graders_of_two_homes_wait_for_each_other(shared, monkeypatch, tmp_path, cache):
    """Each user's lock was in that user's cache folder, so two users measured at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    _waits_for_the_other(shared, lambda take: Device("test").measured(take))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_lock_can_be_taken(shared, tmp_path):
    ours = Path(tempfile.gettempdir())
    for folder in (tmp_path, *(parent for parent in tmp_path.parents if ours in parent.parents)):
        folder.chmod(0o755)
    _waits_for_the_other(shared, lambda take: Device("test").measured(take), "65534")


def test_a_learners_check_waits_for_a_grader(shared, monkeypatch, tmp_path):
    """In the command, which says that it waits, and in a cell of a notebook."""
    steps: list[str] = []

    def examine(folder, examiner, only=None):
        return Examination((toy_lab.outcome("answer", examiner.measured(lambda: "full"), ""),))

    (tmp_path / "answer.txt").write_text("42")
    monkeypatch.setattr(toy_lab, "examine", examine)
    for module in (device_lock, self_check):
        monkeypatch.setattr(module, "device_name", lambda: "test")
    command = lambda done: self_check.check(toy_lab, tmp_path, begins=lambda name, _: steps.append(name)) and done()  # noqa: E731
    _waits_for_the_other(shared, command, asked=lambda: bool(steps))
    assert steps == ["waiting: another measurement runs on test"]
    _waits_for_the_other(shared, lambda done: toy_lab.check("answer", tmp_path) and done())


def test_a_lock_that_was_cleaned_away_is_made_again(shared):
    with device_lock.alone("test"):
        (path,) = shared.iterdir()
    path.unlink()
    with device_lock.alone("test"):
        assert path.is_file()


def test_a_planted_link_is_not_followed(shared, tmp_path):
    with device_lock.alone("test"):
        (path,) = shared.iterdir()
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CourseError, match=r"cannot be opened .*: remove it"), device_lock.alone("test"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_without_a_shared_folder_the_lock_is_the_users_own(shared, tmp_path):
    shared.chmod(0o755)
    with device_lock.alone("test"):
        assert not list(shared.iterdir()) and len(list((tmp_path / "home").rglob("*.lock"))) == 1
