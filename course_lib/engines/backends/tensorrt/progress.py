"""The progress of a build, from TensorRT's `IProgressMonitor` (10 and later, and TensorRT for RTX; not in 8.6).

The builder reports nested phases, each with a number of steps: a step of the outer phase may be a whole phase within. A phase's
share done is therefore (steps done + share of the phase inside it) / number of steps.

Source: NVIDIA TensorRT API, `IProgressMonitor.phase_start`, `step_complete`, `phase_finish`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from course_lib.engines.progress import Report


@dataclass
class _Phase:
    name: str
    parent: str | None
    steps: int
    done: int = 0


class Phases:
    """The phases that are open, outermost first. The builder may call from several threads."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._open: list[_Phase] = []
        self._furthest = 0.0
        self._lock = threading.Lock()

    def start(self, name: str, parent: str | None, steps: int) -> None:
        """A phase begins, inside `parent` unless that is None."""
        with self._lock:
            self._open.append(_Phase(name, parent, max(steps, 1)))
        self._tell(name)

    def step(self, name: str) -> None:
        """A phase has finished another of its steps."""
        with self._lock:
            phase = next((phase for phase in reversed(self._open) if phase.name == name), None)
            if phase:
                phase.done = min(phase.done + 1, phase.steps)
        self._tell(name)

    def finish(self, name: str) -> None:
        """A phase ends, whether or not all its steps were reported."""
        with self._lock:
            index = next((i for i in range(len(self._open) - 1, -1, -1) if self._open[i].name == name), None)
            finished = self._open.pop(index) if index is not None else None
        if finished and finished.parent is None:
            self._furthest = 1.0
            self._report(1.0, name)

    def _tell(self, name: str) -> None:
        with self._lock:
            share = 0.0
            for phase in reversed(self._open):  # from the innermost outwards
                share = min((phase.done + share) / phase.steps, 1.0)
            self._furthest = max(self._furthest, share)  # inner phases repeat: a bar that runs back tells nothing
        self._report(self._furthest, name)


def monitor(trt: Any, report: Report) -> Any:
    """An `IProgressMonitor` that reports; None if this version has none."""
    if not hasattr(trt, "IProgressMonitor"):
        return None
    phases = Phases(report)

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.start(phase_name, parent_phase, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            phases.step(phase_name)
            return True  # False would cancel the build; to stop, end the worker

        def phase_finish(self, phase_name: str) -> None:
            phases.finish(phase_name)

    return Monitor()
