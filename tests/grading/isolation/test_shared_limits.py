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


# Started as from a login, with a session keyring that this process joins if the kernel lets it. Prints whether it did, and what each of
# two submissions found.
_GRADER = """
import ctypes, os, subprocess, sys
from course_lib._util import system_calls
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.isolation.sandbox import Sandbox
libc, number = ctypes.CDLL(None), system_calls._MACHINES[os.uname().machine][1][2]
print("keyrings" if libc.syscall(number, 1, b"a_login") > 0 else "none")
with confined(Sandbox()) as launch:
    for _ in range(2):
        ran = subprocess.run(launch([sys.executable, "-I", "-c", sys.argv[1], str(number)]), capture_output=True, text=True)
        print(ran.stdout.split(), ran.stderr[-200:])
print(libc.syscall(number, 10, -3, b"user", b"course-test", 0))
"""
# KEYCTL_SEARCH is 10, of UPDATE 2, GET_PERSISTENT 22. One that is not there may be created by `add`.
_SUBMISSION = """
import ctypes, os, sys
libc, keyctl = ctypes.CDLL(None), int(sys.argv[1])
add = {"x86_64": 248, "aarch64": 217, "riscv64": 217, "ppc64le": 269, "s390x": 278}[os.uname().machine]
%s
print("found" if libc.syscall(keyctl, 10, ring, b"user", b"course-test", 0) > 0 else "none")
libc.syscall(add, b"user", b"course-test", b"choices", 7, ring)
print("kept" if libc.syscall(keyctl, 10, ring, b"user", b"course-test", 0) > 0 else "lost")
"""
_RINGS = {
    "of the session": "ring = -3",
    "of the user": "ring = -4",
    "of the user's session": "ring = -5",
    "of a name": 'ring = libc.syscall(keyctl, 1, b"a_login")',
    "of the user's persistent keys": "ring = libc.syscall(keyctl, 22, -1, -3)",
}


@pytest.mark.parametrize("ring", _RINGS.values(), ids=_RINGS)
def test_a_key_of_one_run_is_not_there_in_the_next(ring):
    ran = subprocess.run([sys.executable, "-c", _GRADER, _SUBMISSION % ring], capture_output=True, text=True, timeout=60)
    assert not ran.returncode, ran.stderr
    keyrings, first, second, after = ran.stdout.splitlines()
    assert first == second and first.startswith("['none', "), "the second run found the key of the first"
    assert int(after) < 0, "the grader's own keyring holds it"
    # a kernel without keyrings, or a container that denies them, denies them to submissions too: no key is kept at all
    assert keyrings == "keyrings" or first.startswith("['none', 'lost']")


# ---- a sandbox that does not start


def test_it_is_told_from_a_command_that_fails() -> None:
    with confined(Sandbox()) as launch:
        for code in (0, 1, 126):
            subprocess.run(launch([sys.executable, "-c", f"raise SystemExit({code})"]), check=False)
        subprocess.run(launch([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]), check=False)
        assert launch.take_failed_start() == ""
    with confined(Sandbox(readable=(Path("/not/there"),))) as launch:
        subprocess.run(launch(["/usr/bin/true"]), check=False, stderr=subprocess.DEVNULL)
        assert "before the command began" in launch.take_failed_start()
        assert launch.take_failed_start() == "", "it is told once"


@pytest.mark.parametrize("name", ["lab01", "lab02", "lab08", "lab10", "lab09", "lab03"])
def test_it_is_the_examiners_fault(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = labs.find(name)
    lab.write_reference(tmp_path, opset=Examiner().opset)
    monkeypatch.setattr(judging, "RUNNER_SANDBOX", dataclasses.replace(judging.RUNNER_SANDBOX, readable=(Path("/not/there"),)))
    verdict = judging.judge(lab, tmp_path)
    assert not verdict.outcomes and "a sandbox did not start" in verdict.fault, verdict.fault or verdict.outcomes


def test_a_submission_cannot_say_so(tmp_path: Path) -> None:
    lab = labs.find("lab03")
    lab.write_reference(tmp_path)
    lies = "import os\nos.write(2, b'bwrap: No space left on device\\n')\nos._exit(1)\n"
    for name in lab.artifacts:
        if name.endswith(".py"):
            (tmp_path / name).write_text(lies)
    verdict = judging.judge(lab, tmp_path)
    assert not verdict.fault and verdict.score < verdict.max_score
