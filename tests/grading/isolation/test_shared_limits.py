"""What no namespace divides: keys, and the number of user namespaces. One submission cannot take it from others."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib import labs
from course_lib._util import system_calls
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.isolation.sandbox import Sandbox
from course_lib.grading.judge import judging
from course_lib.labs import Examiner
from tests.grading.conftest import needs_sandbox

pytestmark = needs_sandbox

_CALLS = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
add_key, request_key, keyctl, clone, unshare = {
    "x86_64": (248, 249, 250, 56, 272), "aarch64": (217, 218, 219, 220, 97)
}[os.uname().machine]
def tried(*call):
    returned = libc.syscall(*call)
    return "done" if returned >= 0 else errno.errorcode[ctypes.get_errno()]
keys = {tried(add_key, b"user", b"name", b"key", 3, -3), tried(request_key, b"user", b"name", None, -3), tried(keyctl, 1, None)}
"""
_NEW_USER = 0x10000000


def inside(code: str, box: Sandbox) -> str:
    with confined(box) as launch:
        ran = subprocess.run(launch([sys.executable, "-I", "-c", code]), capture_output=True, text=True, timeout=60)
    assert not ran.returncode, ran.stderr
    return ran.stdout.strip()


def test_neither_keys_nor_user_namespaces() -> None:
    calls = (
        "keys, tried(unshare, 0x10000000), tried(unshare, 0x10020000), tried(clone, 0x10000011, 0, 0, 0, 0), tried(435, 0, 0)"
    )
    assert inside(f"{_CALLS}print({calls})", Sandbox()) == "{'EPERM'} EPERM EPERM EPERM ENOSYS"


def test_not_by_the_numbers_of_x32_either() -> None:
    """They are those of x86-64 with one bit more. Other machines have no call with such a number, and answer the same."""
    assert (
        inside(f"{_CALLS}print(tried(0x40000000 + keyctl, 1, None), tried(0x40000000 + unshare, {_NEW_USER}))", Sandbox())
        == "ENOSYS ENOSYS"
    )


def test_an_unknown_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "", "", "", "sparc64")))
    with pytest.raises(OSError, match="no system call filter for sparc64"):
        system_calls.program()


# ---- a sandbox that does not start


def test_it_is_told_from_a_command_that_fails() -> None:
    with confined(Sandbox()) as launch:
        for code in (0, 1, 126):
            lie = f"import os; os.write(2, b'bwrap: No space left on device\\n'); os._exit({code})"
            subprocess.run(launch([sys.executable, "-c", lie]), check=False, stderr=subprocess.DEVNULL)
        subprocess.run(launch([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]), check=False)
        assert launch.take_failed_start() == ""
    with confined(Sandbox(readable=(Path("/not/there"),))) as launch:
        subprocess.run(launch(["/usr/bin/true"]), check=False, stderr=subprocess.DEVNULL)
        assert "before the command began" in launch.take_failed_start()
        assert launch.take_failed_start() == "", "it is told once"


@pytest.mark.parametrize("name", ["lab01", "lab10"], ids=["a worker", "functions"])
def test_it_is_the_examiners_fault(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = labs.find(name)
    lab.write_reference(tmp_path, opset=Examiner().opset)
    monkeypatch.setattr(judging, "RUNNER_SANDBOX", dataclasses.replace(judging.RUNNER_SANDBOX, readable=(Path("/not/there"),)))
    verdict = judging.judge(lab, tmp_path)
    assert not verdict.outcomes and "a sandbox did not start" in verdict.fault, verdict.fault or verdict.outcomes
