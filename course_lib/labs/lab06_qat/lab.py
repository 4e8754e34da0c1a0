"""Lab 06, training for INT8: three ways to recover the accuracy that calibration loses."""

from __future__ import annotations

from typing import ClassVar

from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab06_qat import checks, given


class QuantizationAwareTraining(Lab):
    """The submission is two choices, a function and a trained network. The course writes the graphs."""

    name = "lab06_qat"
    title = "Lab 06: training for INT8"
    work_class = checks.QatWork
    artifacts: ClassVar = {
        **dict.fromkeys((checks.CHOICES, checks.QAT), checks.MAX_BYTES),
        given.TRAINED: given.MAX_BYTES,
    }
    sandbox: ClassVar = {"memory_bytes": 6 << 30}  # torch maps gigabytes
    tasks = (
        Task("kernels", "Few layers in float", 2, checks.kernels),
        Task("ranges", "Ranges without training", 2, checks.ranges),
        Task("gradient", "A rounding that lets gradients pass", 3, checks.gradient),
        Task("recover", "Accuracy that calibration loses", 3, checks.recover),
    )
    build_hints: ClassVar = {
        "": "The message names a file, and a layer or a part of it. Print that part in the notebook.",
    }


lab = QuantizationAwareTraining()
