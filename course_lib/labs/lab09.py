"""Lab 09, capstone: a detector in a video pipeline that has to keep up with the camera."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
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
        """Build, show a new video, and judge what comes back. Checks of single tasks share one run while the files are the same."""
        if only is None:
            return self._examined(folder, bench)
        whole = _remembered(self, folder, bench, _digest(folder, self.artefacts))
        return Examination(tuple(o for o in whole.outcomes if o.task.id == only), whole.plan, figures=whole.figures)

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


@lru_cache(maxsize=1)
def _remembered(lab: Capstone, folder: Path, bench: Bench, digest: str) -> Examination:
    """The examination of files with this digest: a run takes half a minute, and all three checks ask for it."""
    return lab._examined(folder, bench)


def _digest(folder: Path, files: Mapping[str, int]) -> str:
    """Of what is handed in, as far as it is looked at."""
    found = sha256()
    for name, largest in files.items():
        path = folder / name
        found.update(repr(path.is_file()).encode())
        if path.is_file():
            with path.open("rb") as file:
                found.update(sha256(file.read(largest)).digest())
    return found.hexdigest()


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
