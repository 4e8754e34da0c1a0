"""Limits on all processes of a submission together: they hold for root, with control groups and without."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course_lib.engines import Worker
from course_lib.errors import WorkerDied
from course_lib.grading.isolation import confinement, supervise
from course_lib.grading.isolation.confinement import confined, enforced_by, group_places
from course_lib.grading.isolation.sandbox import Sandbox
from course_lib.labs import Examiner
from tests.grading.conftest import needs_sandbox

pytestmark = needs_sandbox
MIB = 1 << 20

needs_groups = pytest.mark.skipif(
    not group_places(), reason="no control groups can be made here: the supervisor holds the limits"
)
ways = pytest.mark.parametrize("grouped", [pytest.param(True, marks=needs_groups), False], ids=["groups", "supervisor"])

# Each stops by itself, should no limit stop it.
FORKS = """
import os, time
count = 0
try:
    while count < 400:
        if os.fork() == 0:
            time.sleep(5); os._exit(0)
        count += 1
except OSError as error:
    print("rejected", error.strerror)
print("forks", count, flush=True)
time.sleep(3)
"""
SPREADS = """
import os, time
ends = []
for _ in range(8):
    read, write = os.pipe()
    if os.fork() == 0:
        held = bytearray(b"x" * (60 << 20)); os.write(write, b"x"); time.sleep(60); os._exit(0)
    os.close(write); ends.append(read)
for read in ends:
    os.read(read, 1)  # until this child holds its memory, or was ended
time.sleep(2)
print("got all", flush=True)
"""
HIDES = """
import os, time
for _ in range(40):
    os.write(os.memfd_create("hidden"), bytes(20 << 20)); time.sleep(0.05)
print("got all", flush=True)
"""
FILLS = """
import os, time
for index in range(60):
    open(f"{os.getcwd()}/{index}", "wb").write(bytes(4 << 20)); time.sleep(0.03)
time.sleep(1)
print("got all", flush=True)
"""
MANY_FILES = """
import os, time
for index in range(3000):
    open(f"{os.getcwd()}/{index}", "wb").close()
time.sleep(1)
print("got all", flush=True)
"""


def run(code: str, box: Sandbox, *, grouped: bool) -> subprocess.CompletedProcess:
    with confined(box, grouped=grouped) as launch:
        return subprocess.run(launch([sys.executable, "-c", code]), capture_output=True, text=True, timeout=60)


@ways
def test_an_honest_process_runs(grouped):
    ran = run("print('done')", Sandbox(), grouped=grouped)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
    assert run("raise SystemExit(7)", Sandbox(), grouped=grouped).returncode == 7


@ways
def test_processes(grouped):
    ran = run(FORKS, Sandbox(processes=50), grouped=grouped)
    if grouped:  # the kernel rejects the next one
        assert "rejected" in ran.stdout and int(ran.stdout.split()[-1]) < 50
    else:
        assert ran.returncode == 137 and ran.stderr.splitlines()[-1] == "stopped: started more than 50 processes"


@ways
@pytest.mark.parametrize("code", [SPREADS, HIDES], ids=["many processes", "files without a name"])
def test_memory(grouped, code):
    ran = run(code, Sandbox(memory_bytes=256 * MIB), grouped=grouped)
    assert "got all" not in ran.stdout or (code == SPREADS and grouped)  # there the kernel ends single children
    assert ran.stderr.splitlines()[-1] == "stopped: used more than 0.25 GiB of memory"


@ways
@pytest.mark.parametrize("code", [FILLS, MANY_FILES], ids=["bytes", "files"])
def test_disk(grouped, code, tmp_path):
    ran = run(code, Sandbox(writable=(tmp_path,), disk_bytes=64 * MIB, files=1000), grouped=grouped)
    assert ran.returncode == 137 and "got all" not in ran.stdout
    assert ran.stderr.splitlines()[-1] == "stopped: wrote more than 0.0625 GiB or 1000 files"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 200 * MIB


@needs_groups
def test_groups_go_with_their_processes():
    def mine() -> list[Path]:
        return [group for place in group_places() for group in place.glob(f"course-{os.getpid()}-*")]

    with confined(Sandbox()) as launch:
        child = subprocess.Popen(launch([sys.executable, "-c", "import time; time.sleep(60)"]))
        deadline = time.monotonic() + 10
        while not any((group / "cgroup.procs").read_text() for group in mine()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(mine()) == len(group_places())
    assert child.wait(10) != 0 and mine() == []


@needs_groups
def test_groups_of_a_killed_grader_are_swept():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = [place / f"course-{ended.pid}-0" for place in group_places()]
    for group in left:
        group.mkdir()
    group_places.cache_clear()
    assert group_places() and not any(group.exists() for group in left)


def test_where_no_group_can_be_made_the_supervisor_holds(monkeypatch):
    def reject(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    group_places.cache_clear()
    monkeypatch.setattr(Path, "mkdir", reject)
    assert group_places() == () and "supervisor" in enforced_by()
    monkeypatch.undo()
    group_places.cache_clear()


def test_the_controllers_are_looked_for_where_they_are_handed_down(monkeypatch, tmp_path):
    monkeypatch.setattr(confinement, "_MOUNT", tmp_path)
    (tmp_path / "user/shell").mkdir(parents=True)
    for folder, hands_down in (
        (tmp_path, "cpu memory pids"),
        (tmp_path / "user", "memory pids"),
        (tmp_path / "user/shell", ""),
    ):
        (folder / "cgroup.subtree_control").write_text(hands_down)
    assert confinement._places_v2("/user/shell") == (tmp_path / "user",)
    (tmp_path / "user/cgroup.subtree_control").write_text("memory")
    assert confinement._places_v2("/user/shell") == (tmp_path,)
    (tmp_path / "cgroup.subtree_control").write_text("")
    assert confinement._places_v2("/user/shell") == ()


def test_nothing_in_a_sandbox_runs_when_its_worker_is_left(tmp_path):
    """What still runs would slow down the next measurement."""
    with confined(Sandbox(writable=(tmp_path,))) as launch, Worker(launcher=launch) as worker:
        worker.backends()
        tree = set(supervise.descendants(worker._process.pid))
    assert len(tree) >= 3 and not any(_runs(pid) for pid in tree)


def test_a_supervisor_ends_with_its_grader(tmp_path):
    """The grader is killed and can end nothing itself."""
    grader = f"""
import subprocess, sys, time
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.isolation.sandbox import Sandbox
from pathlib import Path
with confined(Sandbox(writable=(Path({str(tmp_path)!r}),)), grouped=False) as launch:
    child = subprocess.Popen(launch([sys.executable, "-c", "open('alive', 'w').close()\\nimport time\\ntime.sleep(60)"]))
    print(child.pid, flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", grader], stdout=subprocess.PIPE, text=True)
    supervisor = int(process.stdout.readline())
    deadline = time.monotonic() + 20
    while not (tmp_path / "alive").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    tree = set(supervise.descendants(supervisor))
    assert len(tree) >= 3
    process.kill()
    process.wait()
    process.stdout.close()
    while any(Path("/proc", str(pid)).exists() and _runs(pid) for pid in tree) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(pid) for pid in tree)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_says_which_limit_stopped_it():
    tight = Sandbox(memory_bytes=100 * MIB)
    with (
        confined(tight, grouped=False) as launch,
        Worker(launcher=launch) as worker,
        pytest.raises(WorkerDied, match="used more than"),
    ):
        worker.build("onnxruntime", bytes(300 * MIB), {}, timeout_s=30)


def test_an_examiner_with_a_sandbox_is_a_key_of_a_cache():
    """Lab 15 keeps the reference's plan by examiner. Each sandbox is another key."""
    with confined(Sandbox()) as one, confined(Sandbox()) as other:
        examiners = [Examiner(builder="a", runner="b", launcher=launcher) for launcher in (one, one, other)]
    assert len(set(examiners)) == 2
