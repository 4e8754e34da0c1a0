"""Lab 15, capstone: a detector in a video pipeline that has to keep up with the camera."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from course_lib.engines import Plan
from course_lib.errors import FIXED_DIMENSION, MISSING_FILE, PRECISION, PROFILE, BuildError, EngineError, RecipeError
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent
from course_lib.labs.framework.task import Task
from course_lib.labs.lab15_capstone import reference, settings
from course_lib.labs.lab15_capstone.judge import execution, judgment
from course_lib.labs.lab15_capstone.judge.trial import Trial

FRAMES = 1000


class Capstone(Lab):
    """The submission is `model.onnx`, `recipe.toml` and `settings.toml`."""

    name = "lab15_capstone"
    title = "Lab 15: capstone"
    artifacts: ClassVar = {
        "model.onnx": 64 << 20,
        "recipe.toml": 64 << 10,
        settings.FILE: settings.MAX_BYTES,
    }
    process_s: ClassVar = 180.0  # the reference takes up to 35 s
    tasks = (
        Task("detect", "Boxes where the digits are", 4),
        Task("latency", "Boxes in time", 4),
        Task("frames", "No lost frames", 2),
    )
    timed_tasks = ("latency", "frames")
    build_hints: ClassVar = {
        settings.FILE: "Settings() in the notebook checks every value when you make it, and save() writes the file.",
        PRECISION: "`precision` states the graph's number types and does not change them. Which function of the course changes them?",
        MISSING_FILE: "The notebook's three solution cells write the three files: solve them, then check again.",
        **dict.fromkeys(
            (PROFILE, FIXED_DIMENSION),
            "Profile, graph and settings must agree on (batch, channels, size, size). Which batches does the graph allow?",
        ),
    }

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The given detector, one frame per call, in INT8 if the machine is faster with it."""
        reference.write(folder)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Build, run a new video, and judge the answers. Every call measures again; `only` selects an outcome."""
        whole = self._examined(folder, examiner)
        return replace(whole, outcomes=tuple(one for one in whole.outcomes if only in (None, one.task.id)))

    def _examined(self, folder: Path, examiner: Examiner) -> Examination:
        try:
            trial, plan = execution.run(folder, examiner, FRAMES)
        except EngineError as error:
            hint = "Load your engine in the notebook and send it one batch of prepared frames: the error appears there too."
            return Examination(self.zero_outcomes(error, hint))
        except (RecipeError, BuildError) as error:
            return Examination(self.failed_build(error))
        outcomes = judgment.outcomes(self, trial)
        if absent(reference) and outcomes[0].points:  # the period of latency and frames follows from the reference
            outcomes = (outcomes[0], *judgment.so_far(self, trial))
        return Examination(outcomes, plan, figures=trial.figures())

    def trial(self, folder: str | Path = ".", *, frames: int = 200) -> tuple[Trial, Plan]:
        """A learner's trial: the same run on a shorter video, and the plan that was built.

        Raises:
            CourseError: the errors of the examination about the files.
        """
        return execution.run(Path(folder), Examiner(), frames)


lab = Capstone()
