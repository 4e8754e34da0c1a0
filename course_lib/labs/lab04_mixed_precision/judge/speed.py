"""The part of lab 04 for a GPU: a race of the mixed engine, the FP32 engine of the given network, and the reference.

On a CPU, FP16 is not faster, and speed is not graded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from course_lib.benchmark import Comparison, speedup
from course_lib.engines import Plan
from course_lib.labs.framework.answers import fresh_images
from course_lib.labs.framework.criteria import reaches_threshold
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.racing import compare_answering
from course_lib.labs.framework.reference import ours
from course_lib.labs.lab04_mixed_precision import reference as lab04_reference
from course_lib.labs.lab04_mixed_precision.judge.output_error import BATCHES, PARTIAL_DB, ROWS
from course_lib.labs.lab04_mixed_precision.kernels import runnable
from course_lib.recipe import Recipe

OF_REFERENCE = 0.85  # where FP16 gains nothing on small tensors, being as fast as the reference is enough
_USUAL = (8, 32)  # digits and rows of a request
_DIGITS = 128


@dataclass(frozen=True)
class Speed:
    """The outcome of a race between `fp32`, `reference` and `yours`."""

    comparison: Comparison

    @property
    def fast(self) -> bool | None:
        """Whether it is faster than the FP32 engine or about as fast as the reference; None while the measurement cannot decide."""
        latencies = self.comparison.latencies()
        answers = (
            reaches_threshold(speedup(latencies["fp32"], latencies["yours"]), 1.0),
            reaches_threshold(speedup(latencies["reference"], latencies["yours"]), OF_REFERENCE),
        )
        return True if True in answers else None if None in answers else False

    def message(self) -> str:
        """Both ratios in one sentence."""
        latencies = self.comparison.latencies()
        over_fp32 = speedup(latencies["fp32"], latencies["yours"])
        of_reference = speedup(latencies["reference"], latencies["yours"])
        return f"{over_fp32} over the FP32 engine, {of_reference} of the reference's speed."


def measured(model: Path, recipe: Recipe, plan: Plan, examiner: Examiner) -> Speed:
    """Race the engines on fresh digits, in requests of several sizes, and compare the timed answers.

    Args:
        plan: the plan with the counted layers. It runs if the examiner's runner made it.

    Raises:
        BuildError, EngineError: the submission cannot be built or run there.
    """
    with ExitStack() as stack:
        fp32 = lab04_reference.RECIPE.model_copy(update={"precision": "fp32"})
        with ours():
            given = stack.enter_context(
                examiner.reference(runnable(lab04_reference.given().SerializeToString(), fp32, examiner))
            )
            mixed = runnable(lab04_reference.serialized(), lab04_reference.RECIPE, examiner)
            reference = stack.enter_context(examiner.reference(mixed))
        built = plan if examiner.opset is None else None
        yours = stack.enter_context(examiner.engine(examiner.runnable(model, recipe, built)))
        return Speed(
            examiner.measured(
                lambda: compare_answering(
                    {"fp32": given, "reference": reference, "yours": yours},
                    _requests(examiner),
                    truth="fp32",
                    floor_db=PARTIAL_DB,
                    time_limit_s=examiner.measure_s,
                ),
                device_clock=yours.device_clock,
            )
        )


def _requests(examiner: Examiner) -> Callable[[], dict[str, np.ndarray]]:
    """Digits like those that are judged: the usual size in about half of the rounds, any other of the service in the rest."""
    rng = examiner.rng()
    tokens = {rows: fresh_images(examiner, _DIGITS).tokens(rows) for rows in ROWS}

    def request() -> dict[str, np.ndarray]:
        batch, rows = _USUAL if rng.random() < 0.5 else (int(rng.integers(1, BATCHES[-1] + 1)), int(rng.choice(ROWS)))
        begin = int(rng.integers(_DIGITS - batch + 1))
        return {"tokens": tokens[rows][begin : begin + batch]}

    return request
