"""Lab 15, capstone: a detector in a video pipeline that has to keep up with the camera."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from course_lib.engines import Plan
from course_lib.errors import FIXED_DIMENSION, MISSING_FILE, PRECISION, PROFILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab15_capstone import checks, given


class Capstone(Lab):
    """The submission is `model.onnx`, `recipe.toml` and `settings.toml`."""

    name = "lab15_capstone"
    title = "Lab 15: capstone"
    work_class = checks.PipelineWork
    artifacts: ClassVar = {"model.onnx": 64 << 20, "recipe.toml": 64 << 10, given.FILE: given.MAX_BYTES}
    process_s: ClassVar = 180.0  # the reference takes up to 35 s
    tasks = (
        Task("detect", "Boxes where the digits are", 4, checks.detect),
        Task("latency", "Boxes in time", 4, checks.latency),
        Task("frames", "No lost frames", 2, checks.frames),
    )
    timed_tasks = ("latency", "frames")
    run_hint = "Load your engine in the notebook and send it one batch of prepared frames: the error appears there too."
    build_hints: ClassVar = {
        given.FILE: "Settings() in the notebook checks every value when you make it, and save() writes the file.",
        PRECISION: "`precision` states the graph's number types and does not change them. Which function of the course changes them?",
        MISSING_FILE: "The notebook's three solution cells write the three files: solve them, then check again.",
        **dict.fromkeys(
            (PROFILE, FIXED_DIMENSION),
            "Profile, graph and settings must agree on (batch, channels, size, size). Which batches does the graph allow?",
        ),
    }

    def trial(self, folder: str | Path = ".", *, frames: int = 200) -> tuple[given.Trial, Plan]:
        """A learner's trial: the same run on a shorter video, and the plan that was built.

        Raises:
            CourseError: the errors of the examination about the files.
        """
        with checks.PipelineWork(self, Path(folder), Examiner()) as work:
            work.frames = frames
            return work.trial, work.plan


lab = Capstone()
