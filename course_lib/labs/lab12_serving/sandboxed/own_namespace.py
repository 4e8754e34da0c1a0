"""A sandbox for each server inside the sandbox: it cannot see other servers' processes, and can keep files only in its cache.

A process takes new namespaces for users, mounts, processes and IPC objects. It can write only to its cache and
its own temporary folders, which are deleted with it. Then it gives up every capability, so that it cannot undo this. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from course_lib._util import system_calls

# clone(2), mount(2), umount2(2), prctl(2)
_NEW_MOUNTS, _NEW_IPC, _NEW_USER, _NEW_PROCESSES = 0x20000, 0x08000000, 0x10000000, 0x20000000
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_EXEC, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SET_DUMPABLE, _DROP_FROM_BOUNDS, _DIE_WITH_PARENT = 4, 24, 1
STASH, TEMPORARY = Path("/dev/shm"), Path("/tmp")  # inside: each server has its own
_OF_THE_MACHINE = ("cpuinfo", "meminfo", "stat", "devices", "version", "modules", "filesystems", "driver", "sys")
_BYTES = b"size=268435456"


def works() -> str:
    """Why a process of this machine cannot be isolated; empty if it can. Tried in a separate process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        reason = ""
        try:
            set_apart([], [])
        except OSError as error:
            reason = str(error) or "unknown"
        os.write(writer, reason.encode()[:500])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        reason = told.read().decode(errors="replace")
    os.waitpid(child, 0)
    return reason


def set_apart(readable: Sequence[Path], writable: Sequence[Path], *, own_processes: bool = True) -> None:
    """Continue in an isolated child. The calling process never returns from this call: it waits for the child and ends with it.

    Args:
        readable: files and folders below /tmp that can still be read.
        writable: folders below /tmp that can still be written.
        own_processes: in a process namespace of its own. CUDA 13 does not start in one whose /proc is not a procfs (error 304).

    Raises:
        OSError: the system does not permit it. The process is then in a state in which it must not run submitted code.
    """
    user, group = os.getuid(), os.getgid()
    _call("prctl", _SET_DUMPABLE, 1, 0, 0, 0)  # otherwise its own files in /proc belong to root
    _call("unshare", _NEW_USER | _NEW_MOUNTS | _NEW_IPC | (_NEW_PROCESSES if own_processes else 0))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text)
    _call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)
    _own_files(readable, writable)
    reader, writer = os.pipe()
    child = os.fork()  # the first of the new process namespace: all others end with it
    if child:
        _own_proc(child)
        os.close(writer)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF)
    _call("prctl", _DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    os.close(writer)
    os.read(reader, 1)  # until the parent has finished, or is gone
    os.close(reader)
    if not Path("/proc/self/status").is_file() or Path("/proc/1").exists():
        raise OSError("the processes of others can still be seen")
    _without_capabilities()


def _own_proc(child: int) -> None:
    """A folder /proc with the facts about the machine, and with only the child's process, as ``self``.

    A new procfs would be simpler, but the kernel rejects one if parts of the old one are hidden, as in most containers.
    """
    made = TEMPORARY / "proc"
    made.mkdir()
    _mount("tmpfs", made, "tmpfs", _NO_SETUID | _NO_DEVICES)
    for name, source in [(name, Path("/proc", name)) for name in _OF_THE_MACHINE] + [("self", Path("/proc", str(child)))]:
        if source.exists():
            _place(made / name, source)
            _mount(source, made / name, None, _BIND | _RECURSIVE)
    _mount(made, "/proc", None, _BIND | _RECURSIVE)
    _call("umount2", os.fsencode(made), _DETACH)
    made.rmdir()
    _make_read_only(Path("/proc"))


def _own_files(readable: Sequence[Path], writable: Sequence[Path]) -> None:
    """Mount new temporary folders that contain the named files at their old paths. Everything else becomes read-only."""
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    _mount("tmpfs", STASH, "tmpfs", _NO_SETUID | _NO_DEVICES)
    shown = [(path, False) for path in readable] + [(path, True) for path in writable]
    there = [path for path in _mounts() if TEMPORARY in path.parents]  # an interpreter or the course that lies there
    shown += [(path, False) for path in there if not set(there) & {*path.parents}]  # a mount brings those inside of it along
    for number, (path, _) in enumerate(shown):
        _place(STASH / str(number), path)
        _mount(path, STASH / str(number), None, _BIND | _RECURSIVE)
    _mount("tmpfs", TEMPORARY, "tmpfs", _NO_SETUID | _NO_DEVICES, _BYTES)
    for number, (path, is_writable) in enumerate(shown):
        _place(path, STASH / str(number))
        _mount(STASH / str(number), path, None, _BIND | _RECURSIVE)
        if not is_writable:
            _make_read_only(path)
    _call("umount2", os.fsencode(STASH), _DETACH)
    _mount("tmpfs", STASH, "tmpfs", _NO_SETUID | _NO_DEVICES, _BYTES)
    may_write = {TEMPORARY, STASH, *(path for path, is_writable in shown if is_writable)}
    for path in _mounts():
        # device nodes are mounts as well: writing to one is not writing a file
        if path.is_dir() and path not in may_write and not {Path("/proc"), Path("/sys")} & {path, *path.parents}:
            _make_read_only(path)


def _place(path: Path, like: Path) -> None:
    """A folder or an empty file at `path`, whichever `like` is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if like.is_dir():
        path.mkdir(exist_ok=True)
    else:
        path.touch()


def _make_read_only(path: Path) -> None:
    flags = os.statvfs(path).f_flag & (_NO_SETUID | _NO_DEVICES | _NO_EXEC)  # what a new namespace may not take away
    _mount(None, path, None, _REMOUNT | _BIND | _READ_ONLY | flags)


def _mounts() -> list[Path]:
    """The mount points, each once."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    named = dict.fromkeys(line.split()[4].encode().decode("unicode_escape") for line in lines)
    return [Path(name) for name in named if os.path.lexists(name)]


def _without_capabilities() -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        _call("prctl", _DROP_FROM_BOUNDS, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())
    system_calls.deny(user_namespaces=False)


_LIBRARY = ctypes.CDLL(None, use_errno=True)


def _mount(source: Path | str | None, target: Path | str, kind: str | None, flags: int, data: bytes | None = None) -> None:
    encoded = [None if one is None else os.fsencode(one) for one in (source, target, kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), data)


def _call(name: str, *arguments: object) -> None:
    if getattr(_LIBRARY, name)(*arguments) != 0:
        number = ctypes.get_errno()
        shown = [one for one in arguments if isinstance(one, (bytes, int))]
        raise OSError(number, f"{name}{shown}: {os.strerror(number)}")
