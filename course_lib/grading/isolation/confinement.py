"""Limits on processes, memory and disk for all processes of a submission together, also for root.

With control groups, the kernel enforces processes and memory. Without them, the supervisor checks five times per second and ends
the sandbox. In both cases it watches the writable folders. The sandbox itself sets the limits of single processes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from course_lib._util.files import scratch_folder
from course_lib.grading.isolation.sandbox import Sandbox

_NEEDED = ("memory", "pids")
_MOUNT = Path("/sys/fs/cgroup")
_NAME = "course-{pid}-{count}"
_count = itertools.count()


@dataclass(frozen=True, eq=False)  # compared by identity: the examiner that holds it is a key of caches
class Confined:
    """A launcher for `Worker` or anything else that starts a command: each command gets its own sandbox and limits."""

    box: Sandbox
    grouped: bool  # use control groups if they can be created
    report: Path  # file for reasons why a sandbox did not start. No sandbox shows it
    made: list[Path] = field(default_factory=list)  # the control groups so far

    def __call__(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` inside."""
        groups = _make_groups(self.box) if self.grouped else []
        self.made.extend(groups)
        return self.box.supervised(argv, report=self.report, groups=groups)

    def take_failed_start(self) -> str:
        """Why a sandbox did not start since the last call, in one line; empty if all did."""
        with contextlib.suppress(FileNotFoundError):
            said = self.report.read_text(encoding="utf-8").splitlines()
            self.report.unlink()
            return said[-1] if said else ""
        return ""


@contextmanager
def confined(box: Sandbox, *, grouped: bool = True) -> Iterator[Confined]:
    """A launcher with this sandbox and its limits; see `Confined`."""
    with scratch_folder("start-") as folder:
        launcher = Confined(box, grouped, folder / "report")
        try:
            yield launcher
        finally:
            for group in launcher.made:
                _remove(group)


def enforced_by() -> str:
    """What enforces the limits of a process tree on this machine, for `course doctor` and a verdict's provenance."""
    places = group_places()
    return f"control groups ({'v1' if len(places) > 1 else 'v2'})" if places else "a supervisor that looks every 0.2 s"


@cache
def group_places() -> tuple[Path, ...]:
    """Folders in which groups with limits on processes and memory can be created: two in v1, one in v2, none without permission."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return ()
    places = _places_v1({name: path for _, names, path in own for name in names.split(",")})
    places = places or _places_v2(next((path for number, _, path in own if number == "0"), "/"))
    for place in places:
        _sweep(place)
        try:
            tried = place / _NAME.format(pid=os.getpid(), count="tried")
            tried.mkdir()
            tried.rmdir()
        except OSError:
            return ()
    return places


def _places_v1(own: dict[str, str]) -> tuple[Path, ...]:
    if not all(Path(_MOUNT, name, "cgroup.procs").exists() for name in _NEEDED):
        return ()
    inner = (Path(_MOUNT, name, own.get(name, "/").lstrip("/")) for name in _NEEDED)
    return tuple(place if place.is_dir() else _MOUNT / name for name, place in zip(_NEEDED, inner, strict=True))


def _places_v2(own: str) -> tuple[Path, ...]:
    """The nearest group above this process that delegates both controllers. A group with its own processes cannot."""
    here = _MOUNT / own.lstrip("/")
    for place in (here, *here.parents):
        with contextlib.suppress(OSError):
            if set(_NEEDED) <= set((place / "cgroup.subtree_control").read_text().split()):
                return (place,)
        if place == _MOUNT:
            break
    return ()


def _make_groups(box: Sandbox) -> list[Path]:
    """A group in each place with the box's limits; none if one of them cannot be created."""
    groups = []
    try:
        for place in group_places():
            group = place / _NAME.format(pid=os.getpid(), count=next(_count))
            group.mkdir()
            groups.append(group)
            for name, value in (
                ("memory.limit_in_bytes", box.memory_bytes),
                ("memory.max", box.memory_bytes),
                ("memory.swap.max", 0),
                ("pids.max", box.processes),
            ):
                if (group / name).exists():
                    (group / name).write_text(str(value))
    except OSError:
        for group in groups:
            _remove(group)
        return []
    return groups


def _remove(group: Path) -> None:
    """End the processes of a group and remove it. The kernel keeps a group for a moment after its last process."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            for pid in set((group / "cgroup.procs").read_text().split()) - {"0"}:  # 0: seen from another namespace
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.02)


def _sweep(place: Path) -> None:
    """Remove the control groups of graders that were killed."""
    with contextlib.suppress(OSError):
        for group in place.glob(_NAME.format(pid="*", count="*")):
            owner = re.fullmatch(r"course-(\d+)-\w+", group.name)
            if owner and not Path("/proc", owner[1]).exists():
                _remove(group)
