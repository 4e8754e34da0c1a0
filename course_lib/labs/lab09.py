"""Lab 09, capstone: a detector in a video pipeline that has to keep up with the camera."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from course_lib.engines import Plan
from course_lib.errors import BuildError, CourseError, EngineError, PrecisionError, RecipeError
from course_lib.labs import lab09_reference, lab09_run, lab09_settings, lab09_verdict
from course_lib.labs.base import Bench, Examination, Lab, Task
from course_lib.labs.lab09_trial import Trial

FRAMES = 1000


class Capstone(Lab):
    """Hand in `model.onnx`, `recipe.toml` and `settings.toml`."""

    name = "lab09_capstone"
    title = "Lab 09: capstone"
    artefacts: ClassVar = {
        "model.onnx": 64 << 20,
        "recipe.toml": 64 << 10,
        lab09_settings.FILE: lab09_settings.MAX_BYTES,
    }
    tasks = (
        Task("detect", "Boxes where the digits are", 4),
        Task("latency", "Boxes in time", 4),
        Task("frames", "No frame lost", 2),
    )

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The given detector, one frame a call, in INT8 where the machine is faster with it."""
        lab09_reference.write(folder)

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Build, show a new video, and judge what comes back. Every call measures anew; `only` chooses among the outcomes."""
        whole = self._examined(folder, bench)
        return replace(whole, outcomes=tuple(one for one in whole.outcomes if only in (None, one.task.id)))

    def _examined(self, folder: Path, bench: Bench) -> Examination:
        try:
            trial, plan = lab09_run.run(folder, bench, FRAMES)
        except EngineError as error:
            hint = "Load your engine in the notebook and send it one batch of prepared frames: the error appears there too."
            return Examination(self.nothing(str(error), hint))
        except (RecipeError, BuildError) as error:
            return Examination(self.nothing(str(error), _hint(error)))
        return Examination(lab09_verdict.verdict(self, trial), plan, figures=trial.figures())

    def trial(self, folder: str | Path = ".", *, frames: int = 200) -> tuple[Trial, Plan]:
        """A learner's rehearsal: the same run on a shorter video, and the plan that was built.

        Raises:
            CourseError: whatever the examination would say about the files.
        """
        return lab09_run.run(Path(folder), Bench(), frames)


def _hint(error: CourseError) -> str:
    said = str(error)
    if lab09_settings.FILE in said and "is missing" not in said:
        return "Settings() in the notebook checks every value when you make it, and save() writes the file."
    if isinstance(error, PrecisionError):
        return "`precision` is a promise about the graph. Which function of the course changes the graph's number types?"
    if "is missing" in said:
        return "The notebook's three solution cells write the three files: solve them first, then run this cell again."
    if "profile" in said or "dimension" in said.lower():
        return "Profile, graph and settings must agree on (batch, channels, size, size). Which batches does the graph allow?"
    return "Build it in the notebook with course_lib.engines.build: the same error appears there."


lab = Capstone()
