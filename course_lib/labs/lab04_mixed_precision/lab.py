"""Lab 04, mixed precision: FP16 for an encoder whose values exceed its range."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import FIXED_DIMENSION, PRECISION, PROFILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab04_mixed_precision import checks, given


class MixedPrecision(Lab):
    """The submission is `findings.toml`, `model.onnx` and `recipe.toml`."""

    name = "lab04_mixed_precision"
    title = "Lab 04: mixed precision"
    work_class = checks.MixedWork
    artifacts: ClassVar = {given.FILE: given.MAX_BYTES, "model.onnx": 16 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("find", "What breaks in FP16", 2, checks.find),
        Task("error", "FP16 that answers like FP32", 4, checks.error),
        Task("kernels", "FP16 wherever it helps", 4, checks.kernels),
    )
    timed_tasks = ("kernels",)
    run_hint = (
        "Run emulate(onnx.load('model.onnx')) in the notebook, as the cell after task 2 does: the error appears there too."
    )
    build_hints: ClassVar = {
        PRECISION: "`precision` is a statement about the graph. Which function of the course writes FP16 into a graph?",
        **dict.fromkeys(
            (PROFILE, FIXED_DIMENSION), f"Batch and rows are dynamic: the notebook's `service` covers {checks.SERVICE}."
        ),
    }


lab = MixedPrecision()
