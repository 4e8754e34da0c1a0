"""The guide's own commands start a Dask cluster of two workers over TCP, and a batch is graded on it. `make slow-test`."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest

from course_lib.grading.batch.classroom import Classroom
from tests.grading.batch.test_farm import empty
from tests.grading.conftest import ROOT, needs_sandbox, new_course, submit

pytestmark = [pytest.mark.slow, needs_sandbox, pytest.mark.timeout(900)]


def commands() -> list[str]:
    """The guide's block, without comments."""
    guide = (ROOT / "docs/grading_machines.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- a cluster by hand -->\s*```bash\n(.*?)```", guide, re.S)
    assert block, "the guide has no such block"
    return [line for line in block[1].splitlines() if line and not line.startswith("#")]


@contextlib.contextmanager
def started(command: str, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], env=environment, start_new_session=True)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def test_a_batch_on_a_cluster(tmp_path, reference):
    room = Classroom(new_course(tmp_path))
    shutil.copyfile(ROOT / "nbgrader_config.py", tmp_path / "nbgrader_config.py")
    names = [f"s{index}" for index in range(6)]
    for name in names[1:]:
        empty(room, name)
    submit(room, names[0], reference=reference)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COURSE_ROOT": str(tmp_path)}
    scheduler, *workers, grade = (line.replace("8786", port).replace("HOST", "127.0.0.1") for line in commands())
    assert (
        scheduler.startswith("dask scheduler") and len(workers) == 2 and all(line.startswith("dask worker") for line in workers)
    )
    with contextlib.ExitStack() as stack:
        for line in (scheduler, *workers):
            stack.enter_context(started(line.rstrip("& "), environment))
        end = time.monotonic() + 60
        while _workers(f"tcp://127.0.0.1:{port}") < 2 and time.monotonic() < end:
            time.sleep(0.5)
        ran = subprocess.run([*grade.split(), "--json"], env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    grades = {row["student"]: row["score"] for row in json.loads(ran.stdout)["grades"]}
    assert grades == {**dict.fromkeys(names, 0.0), names[0]: 10.0}


def _workers(address: str) -> int:
    from distributed import Client

    try:
        with Client(address, timeout=2, set_as_default=False) as client:
            return len(client.scheduler_info(n_workers=-1)["workers"])
    except (OSError, TimeoutError):
        return 0
