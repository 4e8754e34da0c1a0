"""The guide's own commands start workers over TCP, and a batch is graded on them: of Dask by hand, and on a node of Slurm.

`make slow-test`. Slurm and munge come from Debian, and the test starts them itself, as root: ``make slurm-test`` installs both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from course_lib.grading.batch.classroom import Classroom
from tests.grading.batch.test_farm import empty
from tests.grading.conftest import ROOT, needs_sandbox, new_course, submit

pytestmark = [pytest.mark.slow, needs_sandbox, pytest.mark.timeout(1200)]
GUIDE = (ROOT / "docs/grading_machines.md").read_text(encoding="utf-8")
CONF = (ROOT / "tests/data/slurm.conf").read_text(encoding="utf-8")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")


@pytest.fixture
def grade(tmp_path: Path, reference: Path) -> Callable[[str, dict[str, str]], None]:
    """Grades a class of one solution and three empty submissions by a command, and looks at the points."""
    room = Classroom(new_course(tmp_path))
    submit(room, "s0", reference=reference)
    for name in ("s1", "s2", "s3"):
        empty(room, name)

    def run(command: str, environment: dict[str, str]) -> None:
        ran = subprocess.run(
            [*command.split(), "--json"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        assert ran.returncode == 0, ran.stderr
        grades = {row["student"]: row["score"] for row in json.loads(ran.stdout)["grades"]}
        assert grades == {"s0": 10.0, "s1": 0.0, "s2": 0.0, "s3": 0.0}

    return run


def environment(course: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "COURSE_ROOT": str(course), "PYTHONUNBUFFERED": "1"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(*command: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    """A program in a session of its own, until the end of the block."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def wait_until(ready: Callable[[], bool], logs: Path) -> None:
    end = time.monotonic() + 60
    while not ready():
        if time.monotonic() > end:
            pytest.fail("not ready after a minute: " + "\n".join(file.read_text()[-1500:] for file in logs.glob("*.out")))
        time.sleep(0.5)


def test_a_batch_on_a_cluster(tmp_path, grade):
    block = re.search(r"<!-- a cluster by hand -->\s*```bash\n(.*?)```", GUIDE, re.S)
    assert block, "the guide has no such block"
    port, own = free_port(), environment(tmp_path)
    lines = [line for line in block[1].splitlines() if line and not line.startswith("#")]
    scheduler, *workers, command = (line.replace("8786", str(port)).replace("HOST", "127.0.0.1") for line in lines)
    assert scheduler.startswith("dask scheduler") and [line.split()[:2] for line in workers] == 2 * [["dask", "worker"]]

    def has_workers() -> bool:
        from distributed import Client

        try:
            with Client(f"tcp://127.0.0.1:{port}", timeout=2, set_as_default=False) as client:
                return len(client.scheduler_info(n_workers=-1)["workers"]) == 2
        except (OSError, TimeoutError):
            return False

    with contextlib.ExitStack() as stack:
        for number, line in enumerate((scheduler, *workers)):
            shell = ("bash", "-c", f"exec {line.rstrip('& ')}")
            stack.enter_context(started(*shell, environment=own, log=tmp_path / f"{number}.out"))
        wait_until(has_workers, tmp_path)
        grade(command, own)


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A node that is idle, as the variables with which `sbatch` finds it."""
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    for above in (folder, *folder.parents[:3]):
        above.chmod(0o755)  # munge trusts no socket below a folder that others cannot pass
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, folder=folder, controller=free_port(), node=free_port()))
    devices = ("null", "zero", "full", "random")  # stand for four GPUs: Slurm looks only whether the files exist
    (folder / "gres.conf").write_text("".join(f"Name=gpu Count=1 File=/dev/{name}\n" for name in devices))
    found = {**os.environ, "SLURM_CONF": str(conf)}
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "seed", "log")]
    commands = (
        ("munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge),
        ("slurmctld", "-D", "-f", str(conf)),
        ("slurmd", "-D", "-f", str(conf), "-N", host),
    )

    def is_idle() -> bool:
        return "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], env=found, capture_output=True, text=True).stdout

    with contextlib.ExitStack() as stack:
        for command in commands:
            stack.enter_context(started(*command, environment=found, log=folder / f"{command[0]}.out"))
        wait_until(is_idle, folder)
        yield {"SLURM_CONF": str(conf)}


@pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's daemons start as root")
@pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="no Slurm: make slurm-test installs it")
def test_a_batch_on_slurm(tmp_path: Path, grade, slurm: dict[str, str]) -> None:
    pytest.importorskip("dask_jobqueue", reason="no dask-jobqueue: make slurm-test installs it")
    block = re.search(r"```text\n(from dask_jobqueue import SLURMCluster.*?)```", GUIDE, re.S)
    assert block and "cd /path/to/the/course" in block[1] and ". .venv/bin/activate" in block[1]
    activate = f". '{Path(sys.executable).parent / 'activate'}'"
    (tmp_path / "jobs.py").write_text(
        block[1].replace("/path/to/the/course", str(tmp_path)).replace(". .venv/bin/activate", activate)
    )
    own = environment(tmp_path) | slurm
    command = [sys.executable, str(tmp_path / "jobs.py")]
    with subprocess.Popen(command, cwd=tmp_path, env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jobs:
        assert jobs.stdin and jobs.stdout
        try:
            said = ""
            while not said.endswith("(Return ends the jobs) "):
                letter = jobs.stdout.read(1)
                assert letter, f"the script ended: {said}"
                said += letter
            grade("course grade" + said.rpartition("course grade")[2].partition("(")[0], own)
            queue = subprocess.run(["squeue", "-h", "-o", "%T %b"], env=own, capture_output=True, text=True).stdout.splitlines()
        finally:
            jobs.communicate("\n", timeout=60)
    assert any(line.startswith("RUNNING") and "gpu" in line for line in queue), queue
