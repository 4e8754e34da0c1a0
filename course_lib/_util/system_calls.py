"""System calls that a submission is denied: what they reach is counted for the user, so one sandbox could take it from all others.

The kernel's keyrings are in no namespace, and user namespaces have one limit for all of a user's sandboxes. A filter of seccomp(2)
denies both. It is inherited, and nothing can take it off.
"""

from __future__ import annotations

import errno
import os
import struct

# linux/audit.h; the numbers of add_key, request_key and keyctl, of clone and unshare, and of clone3 (the same everywhere)
_MACHINES = {"x86_64": (0xC000003E, (248, 249, 250), (56, 272)), "aarch64": (0xC00000B7, (217, 218, 219), (220, 97))}
_CLONE3, _NEW_USER = 435, 0x10000000
_ANOTHER_INTERFACE = 0x40000000  # numbers from here on are those of x32, the same calls under another number
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # linux/bpf_common.h
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16  # places in seccomp_data; of the argument, the lower half
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def program() -> bytes:
    """The filter as seccomp(2) and bubblewrap's ``--seccomp`` take it: an array of ``struct sock_filter``.

    Raises:
        OSError: the numbers of the system calls are not known for this machine.
    """
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}: it is known for {', '.join(_MACHINES)}")
    audited, keys, makers = _MACHINES[machine]
    rules = [(_LOAD, _MACHINE, ""), (_EQUAL, audited, "else unknown"), (_LOAD, _NUMBER, "")]
    rules += [(_AT_LEAST, _ANOTHER_INTERFACE, "unknown"), *((_EQUAL, number, "denied") for number in keys)]
    # clone3 has its flags in memory, where a filter cannot look. The C library uses clone where clone3 does not exist.
    rules += [(_EQUAL, _CLONE3, "unknown"), *((_EQUAL, number, "flags") for number in makers)]
    rules += [(_RETURN, _ALLOW, "")]
    places = {"flags": len(rules), "denied": len(rules) + 3, "unknown": len(rules) + 4}
    rules += [(_LOAD, _FIRST_ARGUMENT, ""), (_ANY_BIT, _NEW_USER, "denied")]
    rules += [(_RETURN, _ALLOW, ""), (_RETURN, _FAIL | errno.EPERM, ""), (_RETURN, _FAIL | errno.ENOSYS, "")]
    packed = b""
    for here, (code, value, target) in enumerate(rules):
        otherwise = target.startswith("else ")
        jump = places[target.removeprefix("else ")] - here - 1 if target else 0
        packed += struct.pack("=HBBI", code, 0 if otherwise else jump, jump if otherwise else 0, value)
    return packed
