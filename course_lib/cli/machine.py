"""What this machine can do, and what to do next: the first call of the start page, and the first lines of `course doctor`."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property

from course_lib._util.html import LEFT, notebook_table
from course_lib.cli import installation
from course_lib.cli.progress import Progress, progress_of
from course_lib.engines import default_builder, default_runner
from course_lib.engines.backend import Availability
from course_lib.engines.cuda.driver import capability
from course_lib.engines.registry import availability
from course_lib.errors import BackendUnavailable


@dataclass(frozen=True)
class Machine:
    """In a notebook it is a small table.

    Attributes:
        builder, runner: the backends that are used here, None if there is none.
        gpu: compute capability of the GPU, "" without one.
        missing: required packages that are absent.
        labs: how many labs can be solved, such as "all labs".
    """

    builder: Availability | None
    runner: Availability | None
    gpu: str
    missing: tuple[str, ...]
    labs: str

    @property
    def ready(self) -> str:
        """In one sentence."""
        if not (self.builder and self.runner) or self.missing:
            return "Not ready yet: `course doctor` lists what to install."
        return f"Ready for {self.labs} {'on this GPU' if self._on_gpu else 'without a GPU'}."

    @property
    def _on_gpu(self) -> bool:
        return bool(self.gpu and self.runner and self.runner.name == "tensorrt")

    @cached_property
    def _progress(self) -> Progress:
        return progress_of()

    def _rows(self) -> list[tuple[str, str]]:
        def told(backend: Availability | None, how: str) -> str:
            return f"yes, with {backend.name} {backend.version}{how}" if backend else "no"

        return [
            ("build engines, and see their kernels", told(self.builder, "" if self.gpu else ", which needs no GPU")),
            ("run and time networks", told(self.runner, f", on the GPU ({self.gpu})" if self._on_gpu else ", on the CPU")),
            ("next", self._progress.next_step),
        ]

    def __repr__(self) -> str:
        return "\n".join((self.ready, *(f"{what:36}  {answer}" for what, answer in self._rows())))

    def _repr_html_(self) -> str:
        rows = [*self._rows()[:-1], ("next", self._progress.next_link)]
        return notebook_table(self.ready, {"what": LEFT, "here": LEFT}, [({}, row) for row in rows])


def this_machine() -> Machine:
    """Ask the backends of the course. Nothing is built, and no library of a backend is imported."""
    builder, runner = availability(default_builder()), None
    with contextlib.suppress(BackendUnavailable):
        runner = availability(default_runner())
    labs = "all labs" if availability("torch_tensorrt").version else "all labs but lab 11"
    return Machine(None if builder.no_build else builder, runner, capability() or "", installation.missing_packages(), labs)
