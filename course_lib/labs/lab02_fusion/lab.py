"""Lab 02, fusion: a correct network that does not fuse, rewritten as the same function in half the kernels."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import FIXED_DIMENSION, PRECISION
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab02_fusion import checks


class Fusion(Lab):
    """The submission is `model.onnx` and `causes.json`. The engine is built with the same recipe for every learner."""

    name = "lab02_fusion"
    title = "Lab 02: fusion"
    work_class = checks.FusionWork
    artifacts: ClassVar = {"model.onnx": 4 << 20, checks.FILE: checks.MAX_BYTES}
    tasks = (
        Task("equality", "The same function", 3, checks.equality),
        Task("kernels", "Half the kernels", 5, checks.kernels),
        Task("causes", "Which parts cost kernels", 2, checks.causes),
    )
    run_hint = "Load your engine in the notebook and run batches of 1, 3, 8 and 32: the error appears there too."
    build_hints: ClassVar = {
        PRECISION: "Keep every tensor in float32. Smaller types are the subject of lab 04.",
        FIXED_DIMENSION: "The batch has to stay dynamic, 1 to 32. export_onnx keeps it dynamic; in a reshape, write -1 for it.",
        "": "Build it in the notebook with course_lib.engines.build and lab.recipe: the same error appears there.",
    }
    recipe = checks.RECIPE


lab = Fusion()
