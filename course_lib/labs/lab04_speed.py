"""What a GPU adds to lab 04: the mixed engine raced against the FP32 engine of the given network, and the reference."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines import Plan, split_target
from course_lib.labs import lab04_reference
from course_lib.labs.base import Bench, clearly
from course_lib.labs.lab04_kernels import runnable
from course_lib.labs.reference import ours
from course_lib.recipe import Recipe

OF_REFERENCE = 0.85  # where FP16 gains nothing on small tensors, being as fast as the reference is enough
_SHAPE = (8, 32, 32)


@dataclass(frozen=True)
class Speed:
    """The outcome of a race between `fp32`, `reference` and `yours`."""

    comparison: Comparison

    @property
    def fast(self) -> bool | None:
        """Faster than the FP32 engine or about as fast as the reference: yes, no, or None while measuring could not tell."""
        latencies = self.comparison.latencies()
        answers = (
            clearly(speedup(latencies["fp32"], latencies["yours"]), 1.0),
            clearly(speedup(latencies["reference"], latencies["yours"]), OF_REFERENCE),
        )
        return True if True in answers else None if None in answers else False

    def message(self) -> str:
        """Both ratios in one sentence."""
        latencies = self.comparison.latencies()
        over_fp32 = speedup(latencies["fp32"], latencies["yours"])
        of_reference = speedup(latencies["reference"], latencies["yours"])
        return f"{over_fp32} over the FP32 engine, {of_reference} of the reference's speed."


def graded(bench: Bench) -> bool:
    """Only where a GPU runs the engines: ONNX Runtime on a CPU gains nothing from FP16."""
    return split_target(bench.runner)[0] != "onnxruntime"


def measured(model: Path, recipe: Recipe, plan: Plan, bench: Bench) -> Speed:
    """Race the engines on requests of 8 digits, 32 rows each.

    Args:
        plan: the one whose layers were counted; it is run where the bench's runner made it.

    Raises:
        BuildError, EngineError: the hand-in cannot be built or run there.
    """
    rng = bench.rng()
    with ExitStack() as stack:
        fp32 = lab04_reference.RECIPE.model_copy(update={"precision": "fp32"})
        with ours():
            given = stack.enter_context(bench.reference(runnable(lab04_reference.given().SerializeToString(), fp32, bench)))
            mixed = runnable(lab04_reference.serialized(), lab04_reference.RECIPE, bench)
            reference = stack.enter_context(bench.reference(mixed))
        built = plan if bench.opset is None else None
        yours = stack.enter_context(bench.engine(bench.runnable(model, recipe, built)))
        race = partial(
            compare,
            {"fp32": given, "reference": reference, "yours": yours},
            lambda: {"tokens": rng.random(_SHAPE, dtype="float32")},
            baseline="fp32",
            time_limit_s=bench.measure_s,
            min_rounds=100,
        )
        return Speed(bench.measured(race))
