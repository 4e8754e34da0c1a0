"""Starts a command and supervises it: puts it into control groups, watches what it uses, and says why it was stopped.

It runs as a file with only the standard library, because it starts before every process of a submission, in about 20 ms:
``python -I -S supervise.py LIMITS COMMAND...``. LIMITS is JSON, see `course_lib.grading.isolation.confinement`. The last line on
standard error names the limit that was exceeded, if one was. A sandbox that did not start is reported in a file, which a submission
cannot write: what it says itself proves nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LOOK_S = 0.2


def main(limits: dict[str, Any], command: list[str]) -> int:
    """Run the command to its end, or to the first limit that it exceeds; returns its exit status."""
    try:
        for group in limits["groups"]:
            Path(group, "cgroup.procs").write_text(str(os.getpid()))
        status, says = os.pipe()
        filtered = os.memfd_create("filter")
        os.write(filtered, bytes.fromhex(limits["filter"]))
        os.lseek(filtered, 0, os.SEEK_SET)
        at = command.index("bwrap") + 1
        options = ["--json-status-fd", str(says), "--seccomp", str(filtered)]
        parent = os.getppid()
        child = subprocess.Popen([*command[:at], *options, *command[at:]], pass_fds=(says, filtered))
        os.close(says)
    except OSError as error:
        _report(limits, str(error))
        return 126
    try:
        while True:
            try:
                code = child.wait(_LOOK_S)
                break
            except subprocess.TimeoutExpired:
                pass
            reason = "" if os.getppid() == parent else "the grader has ended"
            if reason := reason or exceeded(limits, child.pid):
                child.kill()  # the sandbox dies with it, and everything inside with the sandbox
                _say(reason)
                return 128 + signal.SIGKILL
    except KeyboardInterrupt:
        child.kill()
        return 128 + signal.SIGINT
    if out_of_memory(limits["groups"]):
        _say(f"used more than {limits['memory_bytes'] / 2**30:g} GiB of memory")
    elif code >= 0 and not _began(status):
        _report(limits, f"bubblewrap ended with status {code} before the command began")
    return code if code >= 0 else 128 - code


def _began(status: int) -> bool:
    """Whether bubblewrap started the command: only then it says how the command ended."""
    os.set_blocking(status, False)
    with contextlib.suppress(BlockingIOError):
        return b"exit-code" in os.read(status, 1 << 16)
    return False


def exceeded(limits: dict[str, Any], pid: int) -> str:
    """The limit that this process and its descendants exceed, or "". Control groups hold theirs without us."""
    if not limits["groups"]:
        tree = list(descendants(pid))
        if len(tree) > limits["processes"]:
            return f"started more than {limits['processes']} processes"
        if sum(map(_resident_bytes, tree)) + _bytes_of_memory_files(tree) > limits["memory_bytes"]:
            return f"used more than {limits['memory_bytes'] / 2**30:g} GiB of memory"
    for folder in limits["folders"]:
        if written(folder, limits["disk_bytes"], limits["files"]):
            return f"wrote more than {limits['disk_bytes'] / 2**30:g} GiB or {limits['files']} files"
    return ""


def descendants(pid: int) -> Iterator[int]:
    """`pid` and every process below it, by the parents that /proc names."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(after_name[1]), []).append(int(entry.name))
    todo = [pid]
    while todo:
        one = todo.pop()
        yield one
        todo += children.get(one, [])


def written(folder: str, most_bytes: int, most_files: int) -> bool:
    """Whether a folder holds more than that. The function stops as soon as it knows, and does not follow links."""
    size = files = 0
    for here, folders, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(here, name)).st_blocks * 512
        files += len(names) + len(folders)
        if size > most_bytes or files > most_files:
            return True
    return False


def out_of_memory(groups: list[str]) -> bool:
    """Whether the kernel has ended a process of these control groups for its memory (v1 and v2 write the same line)."""
    for path in (Path(group, name) for group in groups for name in ("memory.oom_control", "memory.events")):
        with contextlib.suppress(OSError):
            if any(line.startswith("oom_kill ") and not line.endswith(" 0") for line in path.read_text().splitlines()):
                return True
    return False


def _resident_bytes(pid: int) -> int:
    """Memory in RAM that does not belong to a file. What several processes map and share counts for each of them."""
    kib = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                kib += int(line.split()[1])
    return kib << 10


def _bytes_of_memory_files(pids: list[int]) -> int:
    """Bytes in files that are in memory and have no name (memfd_create), which can be filled without being mapped."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(entry.readlink()).startswith("/memfd:"):
                        file = entry.stat()
                        sizes[file.st_dev, file.st_ino] = file.st_blocks * 512
    return sum(sizes.values())


def _report(limits: dict[str, Any], reason: str) -> None:
    with contextlib.suppress(OSError), open(limits["report"], "a", encoding="utf-8") as file:
        file.write(f"{reason}\n")


def _say(reason: str) -> None:
    with contextlib.suppress(OSError):
        print(f"stopped: {reason}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
