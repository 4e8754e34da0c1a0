"""Keys in the kernel's keyrings do not pass from one submission to another, nor stay after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.grading.conftest import needs_sandbox

# Started as from a login, with a session keyring that this process has joined. Prints what each of two processes found.
_GRADER = """
import ctypes, os, subprocess, sys
from course_lib.grading.isolation import supervise
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.isolation.sandbox import Sandbox
libc, number = ctypes.CDLL(None), supervise._KEYCTL.get(os.uname().machine)
if number is None or libc.syscall(number, 1, b"a_login") <= 0:
    sys.exit("no keyrings")
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


@needs_sandbox
@pytest.mark.parametrize("ring", _RINGS.values(), ids=_RINGS)
def test_a_key_of_one_run_is_not_there_in_the_next(ring):
    ran = subprocess.run([sys.executable, "-c", _GRADER, _SUBMISSION % ring], capture_output=True, text=True, timeout=60)
    if "no keyrings" in ran.stderr:
        pytest.skip("this kernel has no keyrings, or denies them")
    first, second, after = ran.stdout.splitlines()
    assert first == second and first.startswith("['none', "), "the second run found the key of the first"
    assert int(after) < 0, "the grader's own keyring holds it"
