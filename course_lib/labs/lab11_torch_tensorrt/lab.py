"""Lab 11, compile inside PyTorch: segments, a module that is whole and right, wrong operators, and settings that are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import MISSING_FILE, CourseError, EngineError
from course_lib.labs.framework.criteria import Criterion, tier
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.guest import MAX_BYTES, started
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.submission_files import missing
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab11_torch_tensorrt.judge import rewriting, searching, segmenting, serving

SEGMENTS, MODEL, SEARCH, SERVICE = "segments.py", "model.py", "search.py", "service.py"
_FAILED_HINT = "Compare the file with requirement 1 of the task. The message says what failed in the grader's process."
Criteria = tuple[list[Criterion], list[Criterion]]


class InsidePyTorch(Lab):
    """The submission is `segments.py`, `model.py`, `search.py` and `service.py`."""

    name = "lab11_torch_tensorrt"
    title = "Lab 11: compile inside PyTorch"
    artifacts: ClassVar = {SEGMENTS: MAX_BYTES, MODEL: rewriting.MAX_BYTES, SEARCH: MAX_BYTES, SERVICE: MAX_BYTES}
    packages: ClassVar = ("torch", "numpy")
    tasks = (
        Task("segments", "Segments and their reasons", 3),
        Task("model", "One segment with right answers", 3),
        Task("search", "Which operator is wrong", 2),
        Task("service", "Settings that are read, batches that are whole", 2),
    )
    process_s: ClassVar = 120.0  # the reference takes 9 s on two loaded cores, and nothing is timed

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The reference's functions and its module."""
        from course_lib.labs.lab11_torch_tensorrt import reference

        texts = {
            SEGMENTS: reference.SEGMENTS,
            MODEL: reference.MODEL,
            SEARCH: reference.SEARCH,
            SERVICE: reference.SERVICE,
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Ask the functions about secret graphs, models and batches; export the module, and run its graph with secret weights."""
        own = examiner.bare_launcher or examiner.launcher

        def model(source: Path, rng: np.random.Generator, own: Launcher | None) -> Outcome:
            return self._model(rewriting.examined(source, rng, own, examiner.launcher))

        judges: dict[str, tuple[str, float, Callable[..., Outcome]]] = {
            "segments": (SEGMENTS, 4, self._segments),
            "model": (MODEL, 15, model),
            "search": (SEARCH, 2, self._search),
            "service": (SERVICE, 2, self._service),
        }
        outcomes = []
        for task, (file, seconds, judge) in judges.items():
            if only in (None, task):
                examiner.begins(f"{task}: {file}", seconds)
                outcomes.append(self._judged_file(task, folder / file, judge, examiner.rng(), own))
        return Examination(tuple(outcomes))

    def _judged_file(
        self, task: str, source: Path, judge: Callable[..., Outcome], rng: np.random.Generator, own: Launcher | None
    ) -> Outcome:
        if not source.is_file():
            hint = "The task's cell writes it. Run it, then check again."
            return self.outcome(task, "none", EngineError(missing(source.name), code=MISSING_FILE), hint)
        try:
            return judge(source, rng, own)
        except CourseError as error:
            return self.outcome(task, "none", EngineError(f"{source.name}: {error}", code=error.code), _FAILED_HINT)

    def _segments(self, source: Path, rng: np.random.Generator, own: Launcher | None) -> Outcome:
        with started(source, own) as learner:
            found = segmenting.answered(learner, rng)
        if found[-1].empty:
            return self._empty("segments", segmenting.SEGMENTS)
        return self._explained("segments", segmenting.criteria(found), segmenting.described(found))

    def _model(self, found: rewriting.Rewriting) -> Outcome:
        if found.empty:
            return self._empty("model", "A method of Rewritten")
        said, hint = rewriting.described(found)
        if found.said:
            return self.outcome("model", "none", EngineError(f"{MODEL}: {said}"), hint)
        return self._explained("model", rewriting.criteria(found), (said, hint))

    def _search(self, source: Path, rng: np.random.Generator, own: Launcher | None) -> Outcome:
        with started(source, own) as learner:
            found = searching.searched(learner, rng)
        if found[-1].empty:
            return self._empty("search", searching.FUNCTION)
        return self._explained("search", searching.criteria(found), searching.described(found))

    def _service(self, source: Path, rng: np.random.Generator, own: Launcher | None) -> Outcome:
        with started(source, own) as learner:
            found = serving.examined(learner, rng)
        if found[0].empty:
            return self._empty("service", serving.SETTINGS)
        wrong = next((one for one in found if one.said), None)
        said = (f"{wrong.said}.", wrong.hint) if wrong else ("", "")
        return self._explained("service", serving.criteria(found), said)

    def _empty(self, task: str, function: str) -> Outcome:
        hint = "Write its body, and run the cell, which writes the file."
        return self.outcome(task, "none", f"{function} is still empty.", hint)

    def _explained(self, task: str, criteria: Criteria, said: Sequence[str]) -> Outcome:
        full, half = criteria
        words, hint = said if tier(full, half)[0] != "full" else ("", "")
        return self.judged(task, full, half, hint, context=words)


lab = InsidePyTorch()
