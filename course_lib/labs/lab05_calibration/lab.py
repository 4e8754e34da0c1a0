"""Lab 05, calibration: INT8 ranges from a recording with some faulty scans."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import MISSING_FILE, PRECISION, PROFILE, ZERO_POINT
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab05_calibration import checks


class Calibration(Lab):
    """The submission is `calibrator.py`, `model.onnx` and `recipe.toml`."""

    name = "lab05_calibration"
    title = "Lab 05: calibration"
    work_class = checks.CalibrationWork
    artifacts: ClassVar = {"calibrator.py": 64 << 10, "model.onnx": 64 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("calibrator", "A calibrator that finds the threshold", 2, checks.calibrator),
        Task("sqnr", "INT8 that answers like float", 3, checks.sqnr),
        Task("kernels", "INT8 kernels in the engine", 2, checks.kernels),
        Task("speed", "Faster than PyTorch", 3, checks.speed),
    )
    run_hint = "Load it in the notebook and run it on the same input: the error appears there too."
    build_hints: ClassVar = {
        PRECISION: "`precision` is a statement about the graph. Which function of the course puts Q/DQ pairs into a graph?",
        MISSING_FILE: "Task 1 writes calibrator.py, and task 2 the other two files. Solve it, then run its cell again.",
        PROFILE: "The notebook's `service` accepts batches from 1 to 32. Write it into your recipe.",
        ZERO_POINT: "TensorRT's INT8 is symmetric: every zero point is 0, and the scale is amax / 127.",
    }
    speed = checks.SPEED
    timed_tasks = ("speed",)


lab = Calibration()
