"""Lab 03, calibration: INT8 ranges from a recording in which some scans went wrong."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.benchmark import Comparison, argmax_agreement
from course_lib.engines import ModelSource, Plan
from course_lib.errors import BuildError, CourseError, EngineError, ExaminerFault, PrecisionError, RecipeError
from course_lib.labs import lab03_reference, lowering, race
from course_lib.labs.answers import fresh_images, logits
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task, TimedWorker
from course_lib.labs.handed_in import missing
from course_lib.labs.int8_layers import int8_layers, weights
from course_lib.labs.lab03_calibrator import ask_calibrator
from course_lib.labs.lab03_histograms import questions
from course_lib.labs.lab03_quality import BATCH, quality
from course_lib.labs.race import Pace, Tiers
from course_lib.labs.reference import ours
from course_lib.models import Digits
from course_lib.precision import lowering_helps
from course_lib.recipe import Recipe

FRESH_IMAGES = 256
# Points for kernels: how many of the reference's INT8 layers may compute in float. Keeping the first and the last is good practice.
FULL_MISSING, PARTIAL_MISSING = 2, 5
SPEED = Tiers(full=Pace(of_reference=0.8, over_eager=1.15), partial=Pace(of_reference=0.5, over_eager=1.05))
SAME_WEIGHTS = 0.9  # share of the network's weights that an engine has to hold; measured: 0.99, whatever stays in float
SAME_ANSWERS = 0.9  # share of the answers that lowering must keep; measured: 0.99 and more where the ranges are any good


@dataclass(frozen=True)
class _Engine:
    """A model, how it is built, and what the builder made of it."""

    model: Path
    recipe: Recipe
    plan: Plan

    def runnable(self, bench: Bench) -> Plan:
        """What the bench's runner executes."""
        return bench.runnable(self.model, self.recipe, self.plan)

    def lowered(self, bench: Bench) -> Plan:
        """The same where INT8 is fast only after lowering."""
        return lowering.runnable(self.model, self.recipe, bench) if lowering.wanted(bench) else self.runnable(bench)


class Calibration(Lab):
    """Hand in `calibrator.py`, `model.onnx` and `recipe.toml`."""

    name = "lab03_calibration"
    title = "Lab 03: calibration"
    artefacts: ClassVar = {"calibrator.py": 64 << 10, "model.onnx": 64 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("calibrator", "A calibrator that finds the threshold", 3),
        Task("sqnr", "INT8 that answers like float", 3),
        Task("kernels", "INT8 kernels in the engine", 2),
        Task("speed", "Faster than PyTorch", 2),
    )
    source = ModelSource("course_lib.models:classifier", ("wide",))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Min-max over the scans that are no brighter than ink can be."""
        lab03_reference.write(folder)

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Ask the calibrator, build, answer fresh images, race. A part that fails takes the points of those that stand on it."""
        calibrator = (self._calibrator(folder / "calibrator.py", bench),) if only in (None, "calibrator") else ()
        if only == "calibrator":
            return Examination(calibrator)
        found = self._engine(folder, bench, only)
        return Examination((*calibrator, *found.outcomes), found.plan, found.comparison, found.figures)

    def _calibrator(self, source: Path, bench: Bench) -> Outcome:
        """The better of the functions that calibrator.py defines, on histograms drawn anew."""
        if not source.is_file():
            return self.outcome(
                "calibrator", "none", missing(source.name), "Task 1 writes it: run its cell, then this one again."
            )
        try:
            answered = ask_calibrator(source, questions(bench.rng()), bench.launcher)
        except EngineError as error:
            hint = "Import it in the notebook and call it with one histogram: the same happens there."
            return self.outcome("calibrator", "none", f"calibrator.py: {error}", hint)
        if not answered:
            hint = "The examiner calls your function by its name: keep the signature that the task gives."
            return self.outcome("calibrator", "none", "calibrator.py defines no function percentile or entropy.", hint)
        best = min(answered, key=lambda answers: (not answers.clean_are_right, len(answers.wrong)))
        tier = "full" if not best.wrong else "partial" if best.clean_are_right else "none"
        return self.outcome("calibrator", tier, best.message(), best.hint(), share=1.0 if tier == "full" else 0.5)

    def _engine(self, folder: Path, bench: Bench, only: str | None) -> Examination:
        try:
            yours = _built(folder, bench)
        except (RecipeError, BuildError) as error:
            return Examination(self.nothing(str(error), _hint_for_build(error), ("sqnr", "kernels", "speed")))
        with _reference(bench) as reference:
            kernels = self._kernels(yours.plan, reference.plan)
            if only == "kernels":
                return Examination((kernels,), yours.plan)
            message, hint = kernels.message, kernels.hint
            if kernels.tier != "none":
                try:
                    return self._run(yours, reference, bench, kernels, with_speed=only != "sqnr")
                except (EngineError, BuildError) as error:
                    message = str(error)
                    hint = "Load your engine in the notebook and run a batch of 4: the error appears there too."
        sqnr, speed = self.nothing(message, hint, ("sqnr", "speed"))
        return Examination((sqnr, kernels, speed), yours.plan)

    def _kernels(self, yours: Plan, reference: Plan) -> Outcome:
        """Which of the layers with weights compute on integers, on the layer table of the engine that was just built."""
        (integer, floating), (wanted, spared) = int8_layers(yours.layers), int8_layers(reference.layers)
        if not wanted:
            raise ExaminerFault("the builder's layer table shows no INT8 layer in the reference's engine")
        held, network = weights(yours.layers), weights(reference.layers)
        if held < SAME_WEIGHTS * network:
            message = f"The layers hold {held:,} weights, the network's {network:,}: this is another network."
            return self.outcome("kernels", "none", message, "Insert the Q/DQ pairs into the network that the notebook exports.")
        missing = max(len(wanted) - len(integer), len(floating) - len(spared))
        message = f"{len(integer)} of {len(integer) + len(floating)} layers with weights compute in INT8; the reference has {len(wanted)}."
        if missing <= FULL_MISSING:
            return self.outcome("kernels", "full", message)
        message += (
            f" In float: {', '.join(repr(name[:60]) for name in floating[:3])}{' and others' if len(floating) > 3 else ''}."
        )
        hint = "A layer becomes INT8 when both of its inputs, activation and weight, come out of a Q/DQ pair. Which have one?"
        return self.outcome("kernels", "partial" if missing <= PARTIAL_MISSING else "none", message, hint, share=0.5)

    def _run(self, yours: _Engine, reference: _Engine, bench: Bench, kernels: Outcome, *, with_speed: bool) -> Examination:
        fresh = fresh_images(bench, FRESH_IMAGES)
        with ExitStack() as stack:
            eager = stack.enter_context(bench.baseline(self.source))
            with ours():
                plan = reference.runnable(bench)
            theirs = stack.enter_context(bench.reference(plan))
            engine = stack.enter_context(bench.engine(yours.runnable(bench)))
            found = quality(eager, theirs, engine, fresh)
            sqnr = self.outcome("sqnr", found.tier, found.message(), found.hint(), share=1.0 if found.tier == "full" else 0.5)
            if not with_speed:
                return Examination((sqnr, kernels), yours.plan, figures=found.figures())
            comparison = None
            if sqnr.tier == "none":
                speed = self.outcome("speed", "none", "A wrong engine has no speed: get the answers right first.", sqnr.hint)
            elif lowering.wanted(bench) and not lowering_helps():
                speed = self._speed_by_kernels(kernels)
            else:
                speed, comparison = self._race(eager, engine, yours, reference, bench, fresh)
        return Examination((sqnr, kernels, speed), yours.plan, comparison, found.figures())

    def _race(
        self, eager: TimedWorker, answered: TimedWorker, yours: _Engine, reference: _Engine, bench: Bench, fresh: Digits
    ) -> tuple[Outcome, Comparison | None]:
        """Both engines in their fastest form. The hand-in's has to answer as the one did whose answers were judged."""
        hint = "Every pair beside those that insert_qdq places costs a pass over a tensor. Are there any on biases?"
        with ExitStack() as stack:
            with ours():
                plan = reference.lowered(bench)
            theirs = stack.enter_context(bench.reference(plan))
            try:
                engine = stack.enter_context(bench.engine(yours.lowered(bench)))
                _check_same_answers(answered, engine, fresh)
                feeds = _feeds(fresh, bench)
                comparison = bench.measured(
                    lambda: race.race(eager, theirs, engine, feeds, SPEED, time_limit_s=bench.measure_s)
                )
            except (EngineError, BuildError) as error:
                return self.outcome("speed", "none", str(error), hint), None
        return race.outcome(self, comparison, SPEED, hint), comparison

    def speed_tier(self, latencies: Mapping[str, np.ndarray]) -> str:
        """See `Lab.speed_tier`."""
        return SPEED.tier(latencies)[0]

    def _speed_by_kernels(self, kernels: Outcome) -> Outcome:
        """Without 8-bit dot products INT8 is slow on a CPU, whoever made it: the points are those for INT8 layers."""
        message = (
            "Not measured: this CPU has no VNNI, where INT8 is no faster than float. The points are those for your INT8 layers."
        )
        return self.outcome("speed", kernels.tier, message, kernels.hint, share=kernels.points / kernels.task.points)


def _built(folder: Path, bench: Bench) -> _Engine:
    for name in ("model.onnx", "recipe.toml"):
        if not (folder / name).is_file():
            raise BuildError(missing(name))
    recipe = Recipe.load(folder / "recipe.toml")
    if recipe.precision != "int8":
        raise PrecisionError(f'recipe.toml says precision = "{recipe.precision}", this lab asks for "int8"')
    return _Engine(folder / "model.onnx", recipe, bench.build(folder / "model.onnx", recipe))


@contextmanager
def _reference(bench: Bench) -> Iterator[_Engine]:
    """The reference, built as the hand-in is."""
    with tempfile.TemporaryDirectory() as folder:
        with ours():
            lab03_reference.write(Path(folder))
            built = _built(Path(folder), bench)
        yield built


def _feeds(fresh: Digits, bench: Bench) -> Callable[[], dict[str, np.ndarray]]:
    """Batches of the very images that were answered: an engine cannot tell whether it is being timed."""
    rng = bench.rng()
    return lambda: {"image": fresh.images[rng.choice(len(fresh), BATCH, replace=False)]}


def _check_same_answers(model: TimedWorker, copy: TimedWorker, fresh: Digits) -> None:
    images = fresh.images[: 8 * BATCH]
    share = argmax_agreement(logits(model, images, [BATCH]), logits(copy, images, [BATCH]))
    if share < SAME_ANSWERS:
        raise EngineError(f"lowered for ONNX Runtime, the model keeps its answer for only {100 * share:.0f} % of the images")


def _hint_for_build(error: CourseError) -> str:
    if isinstance(error, PrecisionError):
        return "`precision` is a promise about the graph. Which function of the course puts Q/DQ pairs into a graph?"
    if "is missing" in str(error):
        return "Task 2 writes both files in its last cell: solve it first, then run that cell again."
    if "zero point" in str(error).lower() or "zero_point" in str(error):
        return "TensorRT's INT8 is symmetric: every zero point is 0, and the scale is amax / 127."
    return "Build it in the notebook with course_lib.engines.build: the same error appears there."


lab = Calibration()
