"""What is forked from the server of warm processes behaves as what the interpreter starts."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from course_lib.engines.backends.torch_tensorrt import installation
from tests import warm_processes


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Iterator[list[str]]:
    """What starts a process from the server of this run, or else from one of its own."""
    served = warm_processes.VARIABLE in os.environ
    with contextlib.nullcontext() if served else warm_processes.start(str(tmp_path_factory.mktemp("server"))):
        yield warm_processes.command()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import os, sys; print(os.getcwd(), sys.argv, os.environ['PLANTED'], input())", 0),
        ("import sys; sys.exit(3)", 3),
        ("1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_it_behaves_as_what_the_interpreter_starts(warm, tmp_path, code, status):
    how = {"input": "said", "text": True, "capture_output": True, "cwd": tmp_path, "env": {"PLANTED": "1"}, "timeout": 60}
    forked, started = (subprocess.run([*python, "-c", code, "a", "b"], **how) for python in (warm, [sys.executable]))
    assert forked.returncode == started.returncode == status and forked.stdout == started.stdout


def test_it_ends_with_who_asked_for_it(warm):
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    asker = subprocess.Popen([*warm, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    made = int(asker.stdout.readline())
    assert made != asker.pid and psutil.pid_exists(made)
    os.killpg(asker.pid, signal.SIGKILL)
    asker.communicate()
    deadline = time.monotonic() + 30
    while psutil.pid_exists(made) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(made)


def test_programs_of_torch_tensorrt_come_from_a_server_that_has_imported_it(warm):
    """And all others from one that has not, because the import replaces parts of torch."""
    code = "import sys; print(any(name.endswith('_tensorrt.dynamo') for name in sys.modules))"
    deadline = time.monotonic() + 60
    while not Path(warm[-1] + warm_processes.CONVERTS).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    for note, imported in (("", "False\n"), (warm_processes.CONVERTS, f"{bool(installation.installed_release())}\n")):
        assert subprocess.run([*warm, "-c", code, note], capture_output=True, text=True).stdout == imported
