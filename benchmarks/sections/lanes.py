"""Sections of a recording in processes, one after the other or side by side, and what is timed while no other one works.

Every row is on disk as soon as it is known, so that an interrupted run leaves a record too. Needs the standard library and numpy only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.recording import about, save
from benchmarks.sections.observing import file_of

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Recording:
    """Which sections there are.

    Attributes:
        module: the program that runs sections, started as ``python -m MODULE FOLDER SECTION ...``.
        lanes: sections that share a process, in their order. Processes run side by side.
        timed: sections with a process each, which prepare, say ``ready NAME``, and measure after a line on their standard input.
        libraries: keys of the row ``installed`` that become the record's versions.
        reserved_s: how long before the end the measuring begins at the latest.
    """

    module: str
    lanes: tuple[tuple[str, ...], ...]
    timed: tuple[str, ...]
    libraries: tuple[str, ...]
    reserved_s: float

    @property
    def sections(self) -> list[str]:
        """All of them, in the order of a record."""
        return [*(name for lane in self.lanes for name in lane), *self.timed]


@dataclass
class Child:
    """A process with its sections, restarted behind a section that it did not survive."""

    module: str
    folder: Path
    sections: list[str]
    timed: bool
    process: subprocess.Popen[str] = field(init=False)
    ready: threading.Event = field(default_factory=threading.Event)
    ended: bool = False

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", self.module, str(self.folder), *self.sections]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        with file_of(self.folder, self.sections[0], "log").open("a") as log:
            for line in process.stdout or ():
                log.write(line)
                log.flush()
                if line.startswith(("ready ", "=====")):
                    print(line.rstrip(), flush=True)
                if line.startswith("ready "):
                    self.ready.set()

    def over(self) -> bool:
        """Whether all of its sections have an outcome; starts it again if it ended before."""
        if self.ended or self.process.poll() is None:
            return self.ended
        missing = [name for name in self.sections if not self._outcome(name).exists()]
        if missing:
            died = {"done": False, "failed": f"the process ended with {self.process.returncode}"}
            self._outcome(missing[0]).write_text(json.dumps(died))
            print("=====", missing[0], json.dumps(died), flush=True)
        self.sections = missing[1:] or self.sections
        self.ended = not missing[1:]
        if not self.ended:
            self._start()
        return self.ended

    def _outcome(self, name: str) -> Path:
        return file_of(self.folder, name, "outcome.json")

    def go(self, seconds: float) -> None:
        """Let it measure, and wait for its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        try:
            self.process.wait(max(seconds, 1))
        except subprocess.TimeoutExpired:
            self.end()
        self.over()

    def send(self, number: signal.Signals) -> None:
        """A signal to it and its own processes."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()


def run(recording: Recording, folder: Path, names: Sequence[str], seconds: float, at_once: int = 1) -> None:
    """`at_once` processes side by side; what is timed when no other one works, or all wait.

    TensorRT times kernels while it builds, so builds on one GPU hold each other up: nine at once took ten times as long.
    """
    ends = time.monotonic() + seconds
    lanes = [[name for name in lane if name in names] for lane in recording.lanes]
    todo = [(lane, False) for lane in lanes if lane] + [([name], True) for name in recording.timed if name in names]
    children: list[Child] = []
    while time.monotonic() < ends:
        left = [child for child in children if not child.over()]
        waiting = [child for child in left if child.timed and child.ready.is_set()]
        others = [child for child in left if child not in waiting]
        if waiting and (not others or time.monotonic() > ends - recording.reserved_s):
            for child in others:
                child.send(signal.SIGSTOP)
            for child in waiting:
                child.go(ends - time.monotonic())
            for child in others:
                child.send(signal.SIGCONT)
        elif todo and len(others) < at_once:
            sections, timed = todo.pop(0)
            children.append(Child(recording.module, folder, sections, timed))
        elif not left:
            break
        else:
            time.sleep(0.1)
    for child in children:
        child.end()


def assemble(recording: Recording, folder: Path, output: Path) -> None:
    """One record of all rows, in the order of the sections; a section without an outcome did not end in time."""
    rows: list[dict[str, Any]] = []
    for name in recording.sections:
        rows += _read(file_of(folder, name, "rows.json")) or []
        outcome = _read(file_of(folder, name, "outcome.json")) or {"done": False, "failed": "not started, or not ended in time"}
        if not outcome["done"]:
            rows.append({"section": name, "case": "", "failed": outcome["failed"]})
    known = _read(folder / "about.json")
    installed = next((row for row in rows if row["case"] == "installed"), {})
    known["versions"] = {name: str(installed[name]) for name in recording.libraries if name in installed}
    save(output, known, rows)
    print(f"{output}: {len(rows)} rows, {sum(bool(row.get('failed')) for row in rows)} of them failed", flush=True)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def start(
    recording: Recording, description: str | None, minutes: float, first: Callable[[Path], None] = lambda folder: None
) -> None:
    """The command line of a recording.

    Args:
        minutes: everything ends after these, by default.
        first: what is made in the folder before any section runs.
    """
    parser = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="for rows, logs and saved modules; default: a new temporary folder")
    parser.add_argument("--sections", nargs="+", default=recording.sections, choices=recording.sections)
    parser.add_argument("--minutes", type=float, default=minutes, help="everything ends after these")
    parser.add_argument("--at-once", type=int, default=1, help="processes side by side; builds then hold each other up")
    parser.add_argument("--assemble", action="store_true", help="only make the record from the folder")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="recording-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not options.assemble:
        (folder / "about.json").write_text(json.dumps(about({})))
        first(folder)
        run(recording, folder, options.sections, 60 * options.minutes, options.at_once)
    assemble(recording, folder, options.output)
