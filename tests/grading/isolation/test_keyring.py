"""Keys in the kernel's keyrings do not pass from one submission to another, nor stay after it."""

from __future__ import annotations

import ctypes
import errno
import subprocess
import sys
from types import SimpleNamespace

import pytest

from course_lib.grading.isolation import supervise
from tests.grading.conftest import needs_sandbox

# Started as from a login, with a session keyring that this process joins if the kernel lets it. Prints whether it did, and what each of
# two submissions found.
_GRADER = """
import ctypes, os, subprocess, sys
from course_lib.grading.isolation import supervise
from course_lib.grading.isolation.confinement import confined
from course_lib.grading.isolation.sandbox import Sandbox
libc, number = ctypes.CDLL(None), supervise._KEYCTL[os.uname().machine]
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


@needs_sandbox
@pytest.mark.parametrize("ring", _RINGS.values(), ids=_RINGS)
def test_a_key_of_one_run_is_not_there_in_the_next(ring):
    ran = subprocess.run([sys.executable, "-c", _GRADER, _SUBMISSION % ring], capture_output=True, text=True, timeout=60)
    assert not ran.returncode, ran.stderr
    keyrings, first, second, after = ran.stdout.splitlines()
    assert first == second and first.startswith("['none', "), "the second run found the key of the first"
    assert int(after) < 0, "the grader's own keyring holds it"
    # a kernel without keyrings, or a container that denies them, denies them to submissions too: no key is kept at all
    assert keyrings == "keyrings" or first.startswith("['none', 'lost']")


class _Kernel:
    """Answers keyctl(2) with these errors in turn, and then with a keyring."""

    def __init__(self, *errors: int) -> None:
        self.errors, self.calls = list(errors), []

    def syscall(self, *arguments: object) -> int:
        self.calls.append([getattr(one, "value", one) for one in arguments])
        if not self.errors:
            return 77
        ctypes.set_errno(self.errors.pop(0))
        return -1


@pytest.mark.parametrize(
    ("errors", "calls"), [((), 1), ((errno.EDQUOT, errno.ENOMEM), 3), ((errno.ENOSYS,), 1), ((errno.EPERM,), 1)]
)
@pytest.mark.parametrize("processor", supervise._KEYCTL)
def test_a_new_keyring_is_asked_for_on_every_processor(processor, errors, calls, monkeypatch):
    kernel = _Kernel(*errors)
    monkeypatch.setattr(supervise.ctypes, "CDLL", lambda *_, **__: kernel)
    monkeypatch.setattr(supervise.os, "uname", lambda: SimpleNamespace(machine=processor))
    monkeypatch.setattr(supervise.time, "sleep", lambda seconds: None)
    supervise.leave_session_keyring()
    assert kernel.calls == [[supervise._KEYCTL[processor], 1, None]] * calls


def test_without_room_for_a_keyring_nothing_is_run(monkeypatch):
    monkeypatch.setattr(supervise.ctypes, "CDLL", lambda *_, **__: _Kernel(*[errno.EDQUOT] * 1000))
    monkeypatch.setattr(supervise.time, "sleep", lambda seconds: None)
    with pytest.raises(OSError, match="no new session keyring"):
        supervise.leave_session_keyring()
