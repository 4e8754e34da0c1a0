"""Lab 05, calibration: INT8 ranges from a recording with some faulty scans."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.benchmark import Comparison, argmax_agreement
from course_lib.engines import ModelSource, Plan
from course_lib.errors import (
    MISSING_FILE,
    PRECISION,
    PROFILE,
    ZERO_POINT,
    BuildError,
    CourseError,
    EngineError,
    ExaminerFault,
    RecipeError,
)
from course_lib.labs.framework import lowering, one_graph, racing
from course_lib.labs.framework.answers import accepted_batches, check_every_size, check_pace, fresh_images, logits
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.examination import Examination, Examiner, TimedWorker
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.layer_precision import int8_layers, weights, weights_in_layers
from course_lib.labs.framework.racing import Pace, Tiers
from course_lib.labs.framework.reference import absent, ours
from course_lib.labs.framework.submission_files import missing, model_and_recipe
from course_lib.labs.framework.task import UNUSUAL, Outcome, Task
from course_lib.labs.lab05_calibration import reference as lab05_reference
from course_lib.labs.lab05_calibration.judge.answer_quality import BATCH, FLOOR_DB, Quality, quality
from course_lib.labs.lab05_calibration.judge.calibrator import ask_calibrator
from course_lib.labs.lab05_calibration.judge.histograms import questions
from course_lib.models import Digits
from course_lib.precision import lowering_helps
from course_lib.recipe import Recipe

_INT8_HINT = "A layer becomes INT8 when both of its inputs, activation and weight, come out of a Q/DQ pair. Which have one?"
SERVICE = (1, 32)  # smallest and largest batch that the engine must accept
FRESH_IMAGES = 256
_FEW_IMAGES_DB = (
    6.0  # 16 images can be this much worse than 256; measured in 96 draws: 1.7 (reference), 3.3 (clipped at 99.9 %)
)
# Points for kernels: how many of the reference's INT8 layers may compute in float. Keeping the first and the last is good practice.
FULL_MISSING, PARTIAL_MISSING = 2, 5
# Share of fresh images that an engine must read right for them. Min-max over all scans reads half of them, and a guess a tenth.
LEAST_RIGHT = 0.3
SPEED = Tiers(full=Pace(of_reference=0.8, over_eager=1.15), partial=Pace(of_reference=0.5, over_eager=1.05))
# An engine holds the network's weights, up to this share fewer or more; measured: 0.99, whatever stays in float. Fewer are a smaller
# network, and more are a second one beside it.
SAME_WEIGHTS = 0.9
SAME_ANSWERS = 0.9  # share of the answers that lowering must keep; measured: 0.99 and more where the ranges are any good


@dataclass(frozen=True)
class _Engine:
    """A model, its recipe, and the plan that the builder made."""

    model: Path
    recipe: Recipe
    plan: Plan

    def runnable(self, examiner: Examiner) -> Plan:
        """The plan that the examiner's runner executes."""
        return examiner.runnable(self.model, self.recipe, self.plan)

    def lowered(self, examiner: Examiner) -> Plan:
        """The same, lowered if INT8 is fast only after lowering."""
        return lowering.runnable(self.model, self.recipe, examiner) if lowering.wanted(examiner) else self.runnable(examiner)


class Calibration(Lab):
    """The submission is `calibrator.py`, `model.onnx` and `recipe.toml`."""

    name = "lab05_calibration"
    title = "Lab 05: calibration"
    artifacts: ClassVar = {"calibrator.py": 64 << 10, "model.onnx": 64 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("calibrator", "A calibrator that finds the threshold", 3),
        Task("sqnr", "INT8 that answers like float", 3),
        Task("kernels", "INT8 kernels in the engine", 2),
        Task("speed", "Faster than PyTorch", 2),
    )
    build_hints: ClassVar = {
        PRECISION: "`precision` is a statement about the graph. Which function of the course puts Q/DQ pairs into a graph?",
        MISSING_FILE: "Task 2 writes both files in its last cell. Solve it, then run that cell again.",
        PROFILE: "The notebook's `service` accepts batches from 1 to 32. Write it into your recipe.",
        ZERO_POINT: "TensorRT's INT8 is symmetric: every zero point is 0, and the scale is amax / 127.",
    }
    speed = SPEED
    timed_tasks = ("speed",)
    source = ModelSource("course_lib.models:classifier", ("wide",))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Min-max over the scans that are no brighter than ink can be."""
        lab05_reference.write(folder)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Query the calibrator, build, run fresh images, measure the speed. A part that fails also costs the points of later parts."""
        calibrator = (self._calibrator(folder / "calibrator.py", examiner),) if only in (None, "calibrator") else ()
        if only == "calibrator":
            return Examination(calibrator)
        found = self._engine(folder, examiner, only)
        return Examination((*calibrator, *found.outcomes), found.plan, found.comparison, found.figures)

    def _calibrator(self, source: Path, examiner: Examiner) -> Outcome:
        """The outcome of the better function of calibrator.py, on fresh histograms."""
        if not source.is_file():
            return self.outcome("calibrator", "none", missing(source.name), "Task 1 writes it. Run its cell, then check again.")
        try:
            answered = ask_calibrator(source, questions(examiner.rng()), examiner.bare_launcher or examiner.launcher)
        except EngineError as error:
            hint = "Import it in the notebook and call it with one histogram: the same error appears there."
            return self.outcome("calibrator", "none", f"calibrator.py: {error}", hint)
        if not answered:
            hint = "The grader calls your function by its name. Keep the signature that task 1 gives."
            return self.outcome("calibrator", "none", "calibrator.py defines no function percentile or entropy.", hint)
        best = min(answered, key=lambda answers: (not answers.clean_are_right, len(answers.wrong)))
        tier = "full" if not best.wrong else "partial" if best.clean_are_right else "none"
        return self.outcome("calibrator", tier, best.message(), best.hint(), share=1.0 if tier == "full" else 0.5)

    def _engine(self, folder: Path, examiner: Examiner, only: str | None) -> Examination:
        with tempfile.TemporaryDirectory() as scratch:
            return self._judged_engine(folder, Path(scratch), examiner, only)

    def _judged_engine(self, folder: Path, scratch: Path, examiner: Examiner, only: str | None) -> Examination:
        try:
            model, recipe = model_and_recipe(folder, "int8")
            _check_profiles(recipe)
            model = one_graph.fixed(model, scratch, examiner)
            yours = _Engine(model, recipe, examiner.build(model, recipe))
        except (RecipeError, BuildError) as error:
            return Examination(self.failed_build(error, ("sqnr", "kernels", "speed")))
        with _reference(examiner) as reference:
            kernels = self._kernels(yours.plan, reference.plan) if reference else self._kernels_so_far(yours.plan)
            message: str | CourseError = kernels.message
            hint = kernels.hint
            if kernels.tier != "none":
                try:
                    return self._run(yours, reference, examiner, kernels, with_speed=only not in ("sqnr", "kernels"))
                except (EngineError, BuildError) as error:
                    message = error
                    hint = "Load your engine in the notebook and run a batch of 4: the error appears there too."
                    (kernels,) = self.zero_outcomes(message, hint, ("kernels",))
        sqnr, speed = self.zero_outcomes(message, hint, ("sqnr", "speed"))
        return Examination((sqnr, kernels, speed), yours.plan)

    def _kernels(self, yours: Plan, reference: Plan) -> Outcome:
        """The outcome for the layers with weights that compute on integers, from the layer table of the new engine."""
        (integer, floating), (wanted, spared) = int8_layers(yours.layers), int8_layers(reference.layers)
        if not wanted:
            raise ExaminerFault("the builder's layer table shows no INT8 layer in the reference's engine")
        copies = max(1, round(weights(yours.layers) / weights(reference.layers)))  # each profile may have kernels of its own
        copies = min(copies, len(yours.recipe.get("profiles", ())) or 1)
        network = weights(reference.layers)
        held = (weights(yours.layers) // copies, weights_in_layers(yours.layers) // copies)
        missing = max(len(wanted) - len(integer), len(floating) - len(spared))
        counted = held if missing <= PARTIAL_MISSING else held[:1]
        if not SAME_WEIGHTS * network <= min(counted) <= max(counted) <= network / SAME_WEIGHTS:
            message = f"The engine holds {held[0]:,} weights, {held[1]:,} of them in layers; the given network has {network:,}. This is "
            message += "another network."
            return self.outcome("kernels", "none", message, "Insert the Q/DQ pairs into the network that the notebook exports.")
        message = f"{len(integer)} of {len(integer) + len(floating)} layers with weights compute in INT8; the reference has {len(wanted)}."
        if missing <= FULL_MISSING:
            return self.outcome("kernels", "full", message)
        message += (
            f" In float: {', '.join(repr(name[:60]) for name in floating[:3])}{' and others' if len(floating) > 3 else ''}."
        )
        tier = "partial" if missing <= PARTIAL_MISSING else "none"
        return self.outcome("kernels", tier, message, _INT8_HINT, share=0.5)

    def _kernels_so_far(self, yours: Plan) -> Outcome:
        """Without the reference, which tells how many layers can compute in INT8: whether any does."""
        integer, floating = int8_layers(yours.layers)
        said = f"{len(integer)} of {len(integer) + len(floating)} layers with weights compute in INT8."
        some = Criterion("layers with weights in INT8", str(len(integer)), "at least 1", bool(integer), HALF)
        return self.so_far("kernels", [some], _INT8_HINT, context=said)

    def _run(
        self, yours: _Engine, reference: _Engine | None, examiner: Examiner, kernels: Outcome, *, with_speed: bool
    ) -> Examination:
        fresh = fresh_images(examiner, FRESH_IMAGES)
        with ExitStack() as stack:
            eager = stack.enter_context(examiner.baseline(self.source))
            theirs = None
            if reference:
                with ours():
                    plan = reference.runnable(examiner)
                theirs = stack.enter_context(examiner.reference(plan))
            engine = stack.enter_context(examiner.engine(yours.runnable(examiner)))
            check_pace(eager, engine, fresh.images[:1])
            found = quality(eager, theirs, engine, fresh, _sizes(examiner))
            kernels = self._of_use(kernels, found)
            sqnr = self._sqnr(found)
            if found.far_better:
                return Examination(self._unusual(found, kernels), yours.plan, figures=found.figures())
            if sqnr.tier != "none":
                try:
                    check_every_size(eager, engine, fresh.images, range(1, SERVICE[1] + 1), FLOOR_DB - _FEW_IMAGES_DB)
                except EngineError as error:
                    hint = "Load your engine in the notebook and run batches from 1 to 32: the error appears there too."
                    sqnr, speed = self.zero_outcomes(error, hint, ("sqnr", "speed"))
                    return Examination((sqnr, kernels, speed), yours.plan)
            if not with_speed:
                return Examination((sqnr, kernels), yours.plan, figures=found.figures())
            comparison = None
            if sqnr.tier == "none":
                speed = self.outcome("speed", "none", "The speed is not measured, because the answers are wrong.", sqnr.hint)
            elif lowering.wanted(examiner) and not lowering_helps():
                speed = self._speed_by_kernels(kernels)
            else:
                speed, comparison = self._race(eager, engine, yours, reference, examiner, fresh)
        return Examination((sqnr, kernels, speed), yours.plan, comparison, found.figures())

    def _sqnr(self, found: Quality) -> Outcome:
        if found.reference_sqnr_db is None:
            return self.so_far("sqnr", found.criteria(), found.hint(), context=found.measured())
        return self.outcome("sqnr", found.tier, found.message(), found.hint(), share=1.0 if found.tier == "full" else 0.5)

    def _of_use(self, kernels: Outcome, found: Quality) -> Outcome:
        """The outcome for INT8 layers, without points if their engine hardly reads a digit."""
        if found.accuracy >= LEAST_RIGHT:
            return kernels
        said = f"Only {100 * found.accuracy:.1f} % of the fresh images are right, expected at least {100 * LEAST_RIGHT:g} %."
        return self.outcome("kernels", "none", f"{kernels.message} {said}", found.hint())

    def _unusual(self, found: Quality, kernels: Outcome) -> tuple[Outcome, ...]:
        """Answers that INT8 cannot give are an instructor's to explain: something else may have computed them."""
        said = f"{found.message()} No INT8 engine that is known is that close to float. An instructor will look at it."
        hint = "Which of your layers compute the answers? Those outside of Q/DQ pairs compute in float."
        spent = [
            self.outcome(name, "inconclusive", said, hint, share=0.0, code=UNUSUAL) for name in ("sqnr", "kernels", "speed")
        ]
        return (spent[0], replace(spent[1], message=f"{kernels.message} {said}"), spent[2])

    def _race(
        self,
        eager: TimedWorker,
        answered: TimedWorker,
        yours: _Engine,
        reference: _Engine | None,
        examiner: Examiner,
        fresh: Digits,
    ) -> tuple[Outcome, Comparison | None]:
        """Race both engines in their fastest form. The submission must give the same answers as the engine that was judged."""
        hint = "Each pair that insert_qdq would not place costs a round trip to memory. Are there pairs on biases?"
        with ExitStack() as stack:
            theirs = None
            if reference:
                with ours():
                    plan = reference.lowered(examiner)
                theirs = stack.enter_context(examiner.reference(plan))
            try:
                engine = stack.enter_context(examiner.engine(yours.lowered(examiner)))
                _check_same_answers(answered, engine, fresh)
                feeds = _feeds(fresh, examiner)
                comparison = racing.race(eager, theirs, engine, feeds, SPEED, examiner, floor_db=FLOOR_DB)
            except (EngineError, BuildError) as error:
                return self.outcome("speed", "none", error, hint), None
        return racing.outcome(self, comparison, SPEED, hint), comparison

    def _speed_by_kernels(self, kernels: Outcome) -> Outcome:
        """Without 8-bit dot products every INT8 engine is slow on a CPU, so the points are those for INT8 layers."""
        message = (
            "Not measured: this CPU has no VNNI, so INT8 is not faster than float. The share of the points is that for kernels."
        )
        if kernels.open:
            return self.so_far("speed", (), "", context=message)
        return self.outcome("speed", kernels.tier, message, kernels.hint, share=kernels.points / kernels.task.points)


@contextmanager
def _reference(examiner: Examiner) -> Iterator[_Engine | None]:
    """The reference, built as the submission is; None in the learner's bundle."""
    if absent(lab05_reference):
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        with ours():
            lab05_reference.write(Path(folder))
            model, recipe = Path(folder, "model.onnx"), lab05_reference.recipe()
            built = _Engine(model, recipe, examiner.build(model, recipe))
        yield built


def _check_profiles(recipe: Recipe) -> None:
    """Whether the recipe accepts every batch of the service."""
    accepted = accepted_batches(recipe, (1, 32, 32), SERVICE[1])
    if rejected := sorted(set(range(SERVICE[0], SERVICE[1] + 1)) - set(accepted)):
        raise BuildError(
            f"recipe.toml's profile does not accept a batch of {rejected[0]}: the service sends {SERVICE[0]} to {SERVICE[1]} images",
            code=PROFILE,
        )


def _sizes(examiner: Examiner) -> list[int]:
    """Batches whose answers are judged: the usual one, the smallest, and two that cannot be known in advance."""
    drawn = examiner.rng().integers(SERVICE[0], 2 * BATCH, 2, endpoint=True)
    return sorted({BATCH, SERVICE[0], *map(int, drawn)})


def _feeds(fresh: Digits, examiner: Examiner) -> Callable[[], dict[str, np.ndarray]]:
    """Batches of the same images that were checked, so that an engine cannot detect whether it is timed."""
    rng = examiner.rng()
    size = racing.batch_sizes(rng, range(BATCH, 2 * BATCH + 1))
    return lambda: {"image": fresh.images[rng.choice(len(fresh), size(), replace=False)]}


def _check_same_answers(model: TimedWorker, copy: TimedWorker, fresh: Digits) -> None:
    images = fresh.images[: 8 * BATCH]
    share = argmax_agreement(logits(model, images, [BATCH]), logits(copy, images, [BATCH]))
    if share < SAME_ANSWERS:
        raise EngineError(f"the copy lowered for ONNX Runtime keeps its answer for only {100 * share:.0f} % of the images")


lab = Calibration()
