"""Lab 01, first engine: the digits classifier from PyTorch to an engine that is accurate, fast, and built for its traffic."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import FIXED_DIMENSION, MISSING_FILE, PRECISION, PROFILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab01_first_engine import checks


class FirstEngine(Lab):
    """The submission is `model.onnx` and `recipe.toml`."""

    name = "lab01_first_engine"
    title = "Lab 01: your first engine"
    work_class = checks.FirstEngineWork
    artifacts: ClassVar = {"model.onnx": 64 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("profile", "A profile for the traffic", 3, checks.profile),
        Task("accuracy", "The same answers as PyTorch", 3, checks.accuracy),
        Task("speed", "Faster than PyTorch", 4, checks.speed),
    )
    run_hint = "Load your engine in the notebook and run the same batch: the error appears there too."
    build_hints: ClassVar = {
        PRECISION: "`precision` in the recipe and the number types of the graph must agree. Which of the two did you mean to change?",
        MISSING_FILE: "Task 1 writes model.onnx and task 2 writes recipe.toml. Solve them, then run their cells again.",
        FIXED_DIMENSION: "The profile gives a range to a dimension that is fixed in the graph. Only the batch needs one: export again "
        "with a dynamic batch, and keep the other sizes equal in min, opt and max.",
        PROFILE: "The exported batch is dynamic, so the recipe needs a profile: min, opt and max, in this order of size, for `image`.",
    }
    speed = checks.SPEED
    timed_tasks = ("speed",)


lab = FirstEngine()
