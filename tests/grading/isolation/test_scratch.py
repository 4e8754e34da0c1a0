"""Temporary files of graders: gone at the end, and after a kill at the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from course_lib._util import scratch
from course_lib._util.files import remove_tree

_WAITS = """
import sys, tempfile, time
from pathlib import Path
from course_lib._util import scratch
from course_lib._util.files import remove_tree
with scratch.owned() as own:
    for _ in range(5):
        (Path(tempfile.mkdtemp()) / "file").write_text("x")
    print(own, flush=True)
    sys.stdin.read()
"""
_ENDS = "from course_lib._util import scratch\nfor _ in range(20):\n    with scratch.owned() as own: (own / 'x').mkdir()"


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def grader() -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", _WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_everything_goes_at_the_end(temporary):
    with scratch.owned() as own:
        assert Path(tempfile.mkdtemp()).parent == own and os.environ["TMPDIR"] == str(own)
    assert list(temporary.iterdir()) == []
    assert os.environ["TMPDIR"] == tempfile.gettempdir() == str(temporary)


def test_a_killed_grader_is_collected_and_a_running_one_is_not(temporary):
    killed, left = grader()
    running, used = grader()
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert left.is_dir()
    with scratch.owned() as own:
        assert {own, used} == set(own.parent.iterdir()), "the dead one's is gone, the living one's is not"
        assert len(list(used.iterdir())) == 5
    running.communicate("", timeout=20)
    assert running.returncode == 0 and list(temporary.iterdir()) == []


def test_a_killed_process_of_a_grader_is_collected_at_its_end(temporary):
    with scratch.owned() as own:
        killed, left = grader()
        assert left.parent == own.parent, "beside its folder, so that paths stay short"
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert left.is_dir()
    assert list(temporary.iterdir()) == []


def test_graders_that_start_and_end_together(temporary):
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: subprocess.run([sys.executable, "-c", _ENDS], capture_output=True), range(4)))
    assert [one.stderr for one in done] == [b""] * 4
    assert list(temporary.iterdir()) == []


def test_neither_a_link_nor_a_folder_of_another_user_is_removed(temporary):
    """Each has a name as the folders of killed graders have it."""
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    link, of_another = temporary / ".trt-grader-link", temporary / ".trt-grader-another"
    link.symlink_to(elsewhere)
    of_another.mkdir()
    if os.getuid() == 0:
        os.chown(of_another, 12345, -1)
    with scratch.owned() as own:
        assert own.parent == temporary and own.stat().st_mode & 0o777 == 0o700
    assert link.is_symlink() and elsewhere.is_dir() and not own.exists()
    assert of_another.is_dir() == (os.getuid() == 0)


def test_folders_that_an_ordinary_user_cannot_write_to_are_removed():
    """A submission can lock its folders. Root does not notice, so as root another user removes them here."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    inner = folder / "own" / "locked"
    (inner / "deeper").mkdir(parents=True)
    (inner / "deeper" / "file").write_text("x")
    kept = folder / "kept"
    kept.mkdir(mode=0o555)
    (inner / "link").symlink_to(kept)
    user = os.getuid() or 12345
    for path in (folder, folder / "own", inner / "deeper", inner / "deeper" / "file", inner, kept):
        os.chown(path, user, -1)
    (inner / "deeper").chmod(0)
    inner.chmod(0o500)
    try:
        child = os.fork()
        if child == 0:
            os.setuid(user)
            remove_tree(folder / "own")
            os._exit((folder / "own").exists())
        assert os.waitpid(child, 0)[1] == 0
        assert kept.stat().st_mode & 0o777 == 0o555, "what a link leads to stays as it is"
    finally:
        remove_tree(folder)
