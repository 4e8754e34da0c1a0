"""The sandbox by itself, and what happens where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.engines import Worker
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.isolation import sandbox
from course_lib.grading.isolation.sandbox import Sandbox
from tests.grading.conftest import needs_sandbox, new_course, submit


def inside(code: str, box: Sandbox | None = None) -> subprocess.CompletedProcess:
    command = (box or Sandbox()).command([sys.executable, "-c", code])
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@needs_sandbox
def test_nobody_without_network_or_foreign_files(tmp_path):
    (tmp_path / "secret").write_text("x")
    code = f"""
import os, socket
print(os.getuid(), os.path.exists({str(tmp_path / "secret")!r}), os.path.exists("/etc/passwd"), os.path.exists("/var"))
print(sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else "no interfaces")
print(len(os.environ), "PATH" in os.environ)
"""
    ran = inside(code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:2] == ["65534 False False False", "no interfaces"]


@needs_sandbox
def test_writes_only_where_it_may(tmp_path):
    code = f"open({str(tmp_path / 'made')!r}, 'w').write('x')\nopen('/usr/made', 'w')"
    ran = inside(code, Sandbox(writable=(tmp_path,)))
    assert "Read-only file system" in ran.stderr or "Permission denied" in ran.stderr
    assert (tmp_path / "made").exists() and not Path("/usr/made").exists()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Somebody's home folder with the key that signs verdicts in it."""
    folder = tmp_path / "home" / "ada"
    (folder / "bin").mkdir(parents=True)
    (folder / "signing.key").write_text("secret")
    monkeypatch.setattr(sandbox, "_homes", lambda: {folder})
    sandbox._reported.cache_clear()
    return folder


@needs_sandbox
def test_an_interpreter_that_is_linked_from_a_home_folder_shows_nothing_else_of_it(home, monkeypatch):
    (home / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"x={home}/bin/python")
    ran = inside(f"import os; print(os.listdir({str(home)!r}))")
    assert ran.stdout.strip() == "['bin']", ran.stderr
    command = Sandbox().command([f"{home}/bin/python", "-c", "print(6 * 7)"])
    assert subprocess.run(command, capture_output=True, text=True).stdout.strip() == "42"


@pytest.mark.parametrize("where", ["prefix", "path", "libraries"])
def test_an_interpreter_that_needs_a_home_folder_is_rejected(home, monkeypatch, where):
    if where == "prefix":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        command = f"{home}/bin/python"
    else:
        variable = {"path": "PYTHONPATH", "libraries": "LD_LIBRARY_PATH"}[where]
        command = f"env {variable}={home.parent} {sys.executable}"
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"x={command}")
    with pytest.raises(CourseError, match=f"submissions would see the home folder {home}: .* in its own folder"):
        Sandbox().command(["true"])
    monkeypatch.setattr(sandbox, "problem", sandbox.problem.__wrapped__)
    assert str(home) in sandbox.problem()
    with pytest.raises(sandbox.SandboxMissing):
        sandbox.require()


def test_an_interpreter_around_the_course_is_rejected(tmp_path, monkeypatch):
    """Made with `python -m venv .` in the course's folder, its prefix holds solutions and grades."""
    root = new_course(tmp_path)
    monkeypatch.setenv("COURSE_ROOT", str(root))
    monkeypatch.setattr(sys, "prefix", str(root))
    with pytest.raises(CourseError, match="submissions would see the course's folder with solutions and grades"):
        Sandbox().command(["true"])
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    assert Sandbox().command(["true"])


def test_every_gpu_is_inside_and_a_variable_says_which_is_used(monkeypatch, tmp_path):
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "sda"):
        (tmp_path / name).touch()
    monkeypatch.setattr(sandbox, "_DEVICES", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    command = Sandbox().command(["true"])
    bound = [Path(command[at + 1]).name for at, word in enumerate(command) if word == "--dev-bind"]
    assert bound == ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"]
    assert command[command.index("CUDA_VISIBLE_DEVICES") + 1] == "1"
    assert not [word for word in command if word.startswith("--as=")], "a driver reserves far more addresses than it uses"


@needs_sandbox
def test_limits_hold():
    assert "MemoryError" in inside("bytearray(64 << 30)").stderr
    box = Sandbox(cpu_seconds=1)
    assert inside("while True: pass", box).returncode != 0
    assert inside("open('/tmp/big', 'wb').write(bytes(1 << 20))", Sandbox(file_bytes=1000)).returncode != 0


@needs_sandbox
def test_a_process_that_needs_numpy_only_sees_no_course():
    ran = inside(f"import numpy, os; print(os.listdir({str(Path(sandbox.__file__).parents[2])!r}))", Sandbox(course=False))
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr


@needs_sandbox
def test_a_worker_runs_inside():
    with Worker(launcher=Sandbox().command) as worker:
        assert {found["name"] for found in worker.backends()} >= {"onnxruntime", "torch"}


def test_without_bubblewrap_grading_rejects_and_says_what_to_install(tmp_path):
    """The real command on a search path that has no bwrap."""
    root = new_course(tmp_path)
    submit(Classroom(root), "ada")
    environment = {**os.environ, "PATH": str(tmp_path), "COURSE_ROOT": str(root)}
    command = [sys.executable, "-m", "course_lib.cli.app", "grade", "lab01"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, timeout=120)
    assert ran.returncode == 1 and ran.stdout == ""
    assert len(ran.stderr.strip().splitlines()) == 1
    assert "apt-get install bubblewrap" in ran.stderr
    assert not (root / "classroom/gradebook.db").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user for this test")
@needs_sandbox
def test_works_for_an_ordinary_user_where_the_kernel_allows_it(tmp_path):
    """Tried as nobody: either it runs, or bubblewrap fails as a whole; it never runs with a weaker sandbox."""
    command = Sandbox().command(["/usr/bin/id", "-u"])
    ran = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "65534") or (ran.returncode != 0 and ran.stdout == "")
