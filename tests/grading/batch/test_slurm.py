"""The guide's own script for Slurm grades a batch on a node of Slurm and munge from Debian, which the test starts itself.

As root: ``make slurm-test``, which installs both.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib.grading.batch.classroom import Classroom
from tests.grading.batch.test_farm import empty
from tests.grading.conftest import ROOT, needs_sandbox, new_course, submit

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
pytestmark = [
    pytest.mark.slow,
    needs_sandbox,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="Slurm's daemons start as root"),
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="no Slurm: make slurm-test installs it"),
]
# Four jobs of a GPU and 16 GB each fit on the node, whatever this machine has: that is the guide's script, and no GPU is used.
CONF = """
ClusterName=course
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=80000 Gres=gpu:4 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def script(course: Path) -> str:
    """The guide's script, with the folder of this course."""
    guide = (ROOT / "docs/grading_machines.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(from dask_jobqueue import SLURMCluster.*?)```", guide, re.S)
    assert block, "the guide has no such block"
    assert "cd /path/to/the/course" in block[1] and ". .venv/bin/activate" in block[1]
    return (
        block[1]
        .replace("/path/to/the/course", str(course))
        .replace(". .venv/bin/activate", f'. "{activate()}"'.replace('"', "'"))
    )


def activate() -> Path:
    return Path(sys.executable).parent / "activate"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def daemon(*command: str, environment: dict[str, str], log: Path) -> Iterator[None]:
    with open(log, "wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A node that is idle, as the environment in which `sbatch` finds it."""
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
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    munge = [
        f"--{name}={folder}/munge.{end}"
        for name, end in (("key-file", "key"), ("pid-file", "pid"), ("seed-file", "seed"), ("log-file", "log"))
    ]
    with contextlib.ExitStack() as stack:
        run = lambda name, *command: stack.enter_context(  # noqa: E731
            daemon(*command, environment=environment, log=folder / f"{name}.out")
        )
        run("munged", "munged", "--foreground", "--force", f"--socket={folder}/munge.socket", *munge)
        run("slurmctld", "slurmctld", "-D", "-f", str(conf))
        run("slurmd", "slurmd", "-D", "-f", str(conf), "-N", host)
        end = time.monotonic() + 60
        while True:
            asked = subprocess.run(["sinfo", "-h", "-o", "%T"], env=environment, capture_output=True, text=True)
            if "idle" in asked.stdout:
                break
            if time.monotonic() > end:
                logs = "\n".join(file.read_text()[-1500:] for file in folder.glob("*.out"))
                pytest.fail(f"the node did not become idle: {asked.stdout} {asked.stderr}\n{logs}")
            time.sleep(0.5)
        yield environment


def test_a_batch_on_slurm(tmp_path: Path, reference: Path, slurm: dict[str, str]) -> None:
    pytest.importorskip("dask_jobqueue", reason="no dask-jobqueue: make slurm-test installs it")
    room = Classroom(new_course(tmp_path))
    shutil.copyfile(ROOT / "nbgrader_config.py", tmp_path / "nbgrader_config.py")
    names = [f"s{index}" for index in range(4)]
    for name in names[1:]:
        empty(room, name)
    submit(room, names[0], reference=reference)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**slurm, "PATH": path, "COURSE_ROOT": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    file = tmp_path / "jobs.py"
    file.write_text(script(tmp_path))
    with subprocess.Popen(
        [sys.executable, str(file)], cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as jobs:
        assert jobs.stdin and jobs.stdout
        try:
            said = ""
            while not said.endswith("(Return ends the jobs) "):
                letter = jobs.stdout.read(1)
                assert letter, f"the script ended: {said}"
                said += letter
            grade = said.rpartition("course grade")[2].partition("(")[0].split()
            ran = subprocess.run(
                ["course", "grade", *grade, "--json"],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=900,
            )
            queue = subprocess.run(["squeue", "-h", "-o", "%T %b"], env=slurm, capture_output=True, text=True).stdout.split(
                "\n"
            )
        finally:
            jobs.communicate("\n", timeout=60)
    assert ran.returncode == 0, ran.stderr
    grades = {row["student"]: row["score"] for row in json.loads(ran.stdout)["grades"]}
    assert grades == {**dict.fromkeys(names, 0.0), names[0]: 10.0}
    assert sum(line.startswith("RUNNING") and "gpu" in line for line in queue) >= 1, queue
