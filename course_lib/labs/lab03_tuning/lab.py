"""Lab 03, tune and keep: a choice that two builds repeat, within limits, and a cache that keeps what was measured."""

from __future__ import annotations

import re
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
from course_lib.labs.lab03_tuning.judge import caching, choosing, measuring, settings, timing
from course_lib.labs.lab03_tuning.judge.words import hint_after

TIMING, CHOICE, BUDGET, CACHE, RECIPE = "timing.py", "choice.py", "budget.py", "timing_cache.py", settings.FILE
_FAILED_HINT = "Import the file in the notebook: the same error appears there."
_ENDED_HINT = "Call its functions in the notebook with many inputs. Does each call end, and does it leave the process running?"
Criteria = tuple[list[Criterion], list[Criterion]]


class Tuning(Lab):
    """The submission is `timing.py`, `choice.py`, `budget.py`, `timing_cache.py` and `recipe.toml`."""

    name = "lab03_tuning"
    title = "Lab 03: tune and keep"
    artifacts: ClassVar = dict.fromkeys((TIMING, CHOICE, BUDGET, CACHE, RECIPE), MAX_BYTES)
    tasks = (
        Task("timing", "A choice that two builds repeat", 3),
        Task("choice", "The least latency within a workspace", 2),
        Task("budget", "What is worth measuring", 1),
        Task("cache", "A timing cache", 3),
        Task("recipe", "Build time against run time", 1),
    )
    process_s: ClassVar = 90.0  # the reference takes 14 to 17 s on two loaded cores, and nothing is timed

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The reference's functions, and the recipe that follows from the record."""
        from course_lib.labs.lab03_tuning import reference
        from course_lib.recipe import Recipe

        files = {TIMING: reference.TIMING, CHOICE: reference.CHOICE, BUDGET: reference.BUDGET, CACHE: reference.CACHE}
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        Recipe(optimization_level=reference.OPTIMIZATION_LEVEL, workspace_mib=reference.WORKSPACE_MIB).save(folder / RECIPE)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Call the functions on secret tables, devices and caches; judge the recipe by the record."""
        judges: dict[str, tuple[str, Callable[..., Outcome]]] = {
            "timing": (TIMING, self._timing),
            "choice": (CHOICE, self._choice),
            "budget": (BUDGET, self._budget),
            "cache": (CACHE, self._cache),
            "recipe": (RECIPE, self._recipe),
        }
        launcher = examiner.bare_launcher or examiner.launcher
        outcomes = []
        for task, (file, judge) in judges.items():
            if only in (None, task):
                examiner.begins(f"{task}: {file}", 2)
                outcomes.append(self._judged_file(task, folder / file, judge, examiner.rng(), launcher))
        return Examination(tuple(outcomes))

    def _judged_file(
        self, task: str, source: Path, judge: Callable[..., Outcome], rng: np.random.Generator, launcher: Launcher | None
    ) -> Outcome:
        if not source.is_file():
            hint = "The task's cell writes it. Run it, then check again."
            return self.outcome(task, "none", EngineError(missing(source.name), code=MISSING_FILE), hint)
        try:
            return judge(source, rng, launcher)
        except CourseError as error:
            of_python = re.match(r"line \d|\w+Error ", str(error))  # and not that of the process
            usual = _FAILED_HINT if of_python else _ENDED_HINT
            hint = hint_after(str(error), usual)
            return self.outcome(task, "none", EngineError(f"{source.name}: {error}", code=error.code), hint)

    def _timing(self, source: Path, rng: np.random.Generator, launcher: Launcher | None) -> Outcome:
        found = timing.rebuilt(source, rng, launcher)
        if found.first[-1].empty:
            return self._empty("timing", timing.FUNCTION)
        return self._explained("timing", found.criteria(), timing.described(found))

    def _choice(self, source: Path, rng: np.random.Generator, launcher: Launcher | None) -> Outcome:
        with started(source, launcher) as learner:
            found = choosing.chosen(learner, rng)
        if found[-1].empty:
            return self._empty("choice", choosing.FUNCTION)
        return self._explained("choice", choosing.criteria(found), choosing.described(found))

    def _budget(self, source: Path, rng: np.random.Generator, launcher: Launcher | None) -> Outcome:
        with started(source, launcher) as learner:
            found = measuring.picked(learner, rng)
        if found[-1].empty:
            return self._empty("budget", measuring.FUNCTION)
        full = measuring.criteria(found)
        return self._explained("budget", (full, full), measuring.described(found))

    def _cache(self, source: Path, rng: np.random.Generator, launcher: Launcher | None) -> Outcome:
        found = caching.played(source, rng, launcher)
        if found[-1].empty:
            return self._empty("cache", "tuned")
        wrong = next((one for one in found if one.said), None)
        said = (f"{wrong.said}.", wrong.hint) if wrong else ("", "")
        return self._explained("cache", caching.criteria(found), said)

    def _recipe(self, source: Path, rng: np.random.Generator, launcher: Launcher | None) -> Outcome:
        full, half = settings.criteria(source.parent)
        hint = "Compute seconds in the compiler plus all runs for each level, and look up each workspace up to 16 MiB."
        return self.judged("recipe", full, half, hint)

    def _empty(self, task: str, function: str) -> Outcome:
        return self.outcome(
            task, "none", f"{function} is still empty.", "Write its body, and run the cell, which writes the file."
        )

    def _explained(self, task: str, criteria: Criteria, said: Sequence[str]) -> Outcome:
        full, half = criteria
        words, hint = said if tier(full, half)[0] != "full" else ("", "")
        return self.judged(task, full, half, hint, context=words)


lab = Tuning()
