"""What is looked at in each task of lab 05: thresholds of new histograms, answers to fresh images, the layer table, and one race."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.benchmark import argmax_agreement
from course_lib.engines import ModelSource
from course_lib.errors import PROFILE, BuildError, EngineError
from course_lib.labs.framework import onnx_model
from course_lib.labs.framework.criteria import ALL, HALF, UNUSUAL, Criterion, all_met, all_right, at_least, at_most
from course_lib.labs.framework.examination import TimedWorker, ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.racing import (
    NOT_FINITE_DB,
    Pace,
    Tiers,
    accepted_batches,
    batch_sizes,
    by_batch_size,
    check_every_size,
    decibels,
    fresh_images,
    logits,
    race,
    worst_decibels,
)
from course_lib.labs.framework.runner import Failed, call
from course_lib.labs.framework.submission import model_and_recipe, submitted
from course_lib.labs.lab05_calibration import reference
from course_lib.labs.lab05_calibration.histograms import Question, questions
from course_lib.models import Digits
from course_lib.precision import lowering_helps
from course_lib.profiling.layer_tables.dtypes import int8_layers, weights, weights_in_layers
from course_lib.recipe import Recipe

SERVICE = (1, 32)  # smallest and largest batch that the engine must accept
GIVEN = ModelSource("course_lib.models:classifier", ("wide",))
FRESH_IMAGES, BATCH = 256, 4
# SQNR of the logits, in dB. Cleaning the recording earns full points, and clipping at its best half of them. Measured without the two
# bright scans: min-max 41, percentile 99.99 39 to 41, 99.97 34 to 35. With them: entropy 34, percentile 99.95 33 to 34, 99.9 29 to 30,
# 99.85 26, mean squared error 13, min-max -2. With float ends the best ranges reach 46.
FULL_DB, PARTIAL_DB, UNUSUAL_DB = 36.0, 27.5, 56.0
FLOOR_DB = 12.0  # of each batch size on 16 images, which can be 6 dB worse than 256
FULL_LOSS, PARTIAL_LOSS = 2.0, 4.0  # of accuracy, in percentage points below PyTorch
# How many of the layers with weights may compute in float. Keeping the first and the last is good practice.
FULL_FLOAT, PARTIAL_FLOAT = 2, 5
SAME_WEIGHTS = 0.9  # of the network's, or that many more: measured 0.99. Fewer are a smaller network, and more a second one.
SAME_ANSWERS = 0.9  # share of the answers that lowering must keep; measured: 0.99 and more where the ranges are any good
SPEED = Tiers(full=Pace(of_reference=0.8, over_eager=1.15), partial=Pace(of_reference=0.5, over_eager=1.05))
_DIMMED, _DIMMED_IMAGES = 0.5, 64  # contrast at which hardly anything is clipped any more
_DEAD = 0.1  # share of the float logits' spread below which an engine does not look at its image


@dataclass(frozen=True)
class Quality:
    """Answers of an engine to fresh images.

    Attributes:
        sqnr_db: SQNR of the logits relative to PyTorch's, at the worst batch size.
        dimmed_sqnr_db: the same on images of half the contrast. It rises if the ranges are too narrow, because less is clipped. It
            falls if they are too wide, because fewer steps are used.
        accuracy, accuracy_eager: right answers in percent, of the engine and of PyTorch.
        spread: standard deviation of the logits over the images, divided by PyTorch's; 0 if they are not finite.
    """

    sqnr_db: float
    dimmed_sqnr_db: float
    accuracy: float
    accuracy_eager: float
    spread: float

    def hint(self) -> str:
        """What is wrong with the ranges."""
        if self.sqnr_db == NOT_FINITE_DB:
            return "The answers hold NaN or infinity. Is one of your thresholds 0, NaN or infinity?"
        if self.spread < _DEAD:
            return "The logits are the same for every image: the steps are larger than the values. Did you prepare ink from 0 to 1?"
        dimmed = f"At half the contrast your engine has {self.dimmed_sqnr_db:.0f} dB, so"
        if self.dimmed_sqnr_db > self.sqnr_db:
            return f"{dimmed} it loses by clipping: the ranges are too narrow. Which of your two remedies clips digits as well?"
        return f"{dimmed} its steps are too coarse: the ranges are too wide. How many scans set the one of `image`?"


class CalibrationWork(Work):
    """A calibrator, and an INT8 engine beside PyTorch on the same fresh images."""

    @step
    def thresholds(self) -> list[tuple[Question, Any]]:
        """The result of calibrator.py's function for each histogram."""
        asked = questions(self.rng())
        calls = {"percentile": [question.arguments() for question in asked]}
        found = call(submitted(self.folder, "calibrator.py"), calls, self.examiner)
        return list(zip(asked, found["percentile"], strict=True))

    @step
    def files(self) -> tuple[Path, Recipe]:
        """``model.onnx`` and ``recipe.toml``, which accepts every batch of the service."""
        model, recipe = model_and_recipe(self.folder, "int8")
        accepted = accepted_batches(recipe, (1, 32, 32), SERVICE[1])
        if rejected := [n for n in range(SERVICE[0], SERVICE[1] + 1) if n not in accepted]:
            raise BuildError(
                f"recipe.toml's profile does not accept a batch of {rejected[0]}: the service sends 1 to 32", code=PROFILE
            )
        return model, recipe

    @step
    def reference(self) -> Path:
        """The reference's model, in a folder of its own."""
        folder = self.scratch / "reference"
        folder.mkdir(exist_ok=True)
        reference.write(folder)
        return folder / "model.onnx"

    @step
    def network(self) -> dict[str, int]:
        """Of the reference's engine: its layers in INT8 and in float, and its weights."""
        if self.expected:
            return dict(self.expected)
        layers = self.examiner.build(self.reference, reference.recipe()).layers
        return dict(zip(("int8", "float"), map(len, int8_layers(layers)), strict=True)) | {"weights": weights(layers)}

    @step
    def fresh(self) -> Digits:
        """Fresh images."""
        return fresh_images(self.examiner, FRESH_IMAGES)

    @step
    def engines(self) -> tuple[TimedWorker, TimedWorker]:
        """PyTorch eager and the submission, both loaded."""
        eager = self.enter_context(self.examiner.baseline(GIVEN))
        plan = self.examiner.runnable(self.graph, self.files[1], self.plan)
        yours = self.enter_context(self.examiner.engine(plan))
        return eager, yours

    @step
    def quality(self) -> Quality:
        """At the usual batch, the smallest, and two that cannot be known in advance."""
        drawn = self.rng().integers(SERVICE[0], 2 * BATCH, 2, endpoint=True)
        found = quality(*self.engines, self.fresh, sorted({BATCH, SERVICE[0], *map(int, drawn)}))
        self.figures |= asdict(found)
        return found

    @step
    def right(self) -> bool:
        """Whether it answers in INT8 like the given network, with ranges that the faulty scans do not spoil. The race waits for this."""
        return all_met(list(sqnr(self))) is True and all(one.met for one in kernels(self) if one.needed_for == HALF)


def quality(eager: TimedWorker, yours: TimedWorker, fresh: Digits, sizes: Sequence[int] = (BATCH,)) -> Quality:
    """Run both engines on the same fresh images."""
    want_by_size, have_by_size = (by_batch_size(engine, fresh.images, sizes) for engine in (eager, yours))
    want, have = np.concatenate(want_by_size), np.concatenate(have_by_size)
    dim = _DIMMED * fresh.images[:_DIMMED_IMAGES]
    right, right_eager = (100 * float((answers.argmax(1) == fresh.labels).mean()) for answers in (have, want))
    return Quality(
        sqnr_db=worst_decibels(want_by_size, have_by_size),
        dimmed_sqnr_db=decibels(logits(eager, dim, [BATCH]), logits(yours, dim, [BATCH])),
        accuracy=right,
        accuracy_eager=right_eager,
        spread=float(have.std(0).mean() / want.std(0).mean()) if np.isfinite(have).all() else 0.0,
    )


def calibrator(work: CalibrationWork) -> Iterator[Criterion]:
    """The function of calibrator.py, on smooth histograms and on those of real recordings."""
    hint = _hint([(question, result) for question, result in work.thresholds if wrong(question, result)])
    for clean, needed_for in ((True, HALF), (False, ALL)):
        several = [pair for pair in work.thresholds if pair[0].clean is clean]
        lines = [line for pair in several if (line := wrong(*pair))]
        yield all_right(f"{'smooth' if clean else 'other'} histograms", lines, len(several), needed_for, hint=hint)


def wrong(question: Question, result: Any) -> str:
    """What is wrong with a threshold; empty if it is right."""
    asked = f"{question.name} (percent {question.percent:g}, {len(question.histogram.counts)} bins)"
    if isinstance(result, Failed):
        return f"{asked}: {result}"
    if isinstance(result, bool) or not isinstance(result, (int, float)) or not math.isfinite(result):
        return f"{asked}: not a finite number"
    off = question.bins_off(result)
    return f"{asked}: {result:.4g} is {abs(off):.0f} bins too {'high' if off > 0 else 'low'}" if off else ""


def _hint(answers: Sequence[tuple[Question, Any]]) -> str:
    """Where to look, from the wrong thresholds."""
    failed = [result for _, result in answers if isinstance(result, Failed)]
    if any(one.empty for one in failed):
        return "The function is still empty: write its body in task 1 and run the cell, which writes calibrator.py."
    if failed:
        return "Call it in the notebook with the histogram of a tensor: the same error appears there, with all its lines."
    numbers = [(question, one) for question, one in answers if isinstance(one, (int, float)) and math.isfinite(one)]
    if numbers and all(1 - 1e-6 <= abs(question.bins_off(one)) <= 1 + 1e-6 for question, one in numbers):
        return "Off by one bin: where does bin k end, and on which side of that edge are its values?"
    if not any(question.clean for question, _ in answers):
        return "Which line of your function fails with empty bins, with many zeros, or at 100 percent?"
    return "Count values, not bins: what share of all values lies below your threshold?"


def sqnr(work: CalibrationWork) -> Iterator[Criterion]:
    """Fresh images through PyTorch and the engine."""
    yield next(_layers(work))  # a float engine does not have any quantization noise
    found = work.quality
    lost = max(0.0, found.accuracy_eager - found.accuracy)
    yield from _decibels(found)
    for loss, needed_for in ((PARTIAL_LOSS, HALF), (FULL_LOSS, ALL)):
        name = f"right answers {found.accuracy:.1f} % of {FRESH_IMAGES} fresh images, percentage points below PyTorch"
        yield at_most(name, lost, loss, needed_for, hint=found.hint())
    if found.sqnr_db > UNUSUAL_DB:
        bound = f"at most {UNUSUAL_DB:g} dB in INT8"
        yield Criterion("SQNR that is known to be possible", f"{found.sqnr_db:.0f} dB", bound, None, HALF, code=UNUSUAL)
    if found.sqnr_db >= PARTIAL_DB:
        check_every_size(*work.engines, work.fresh.images, range(1, SERVICE[1] + 1), FLOOR_DB)


def _decibels(found: Quality) -> Iterator[Criterion]:
    for least, needed_for in ((PARTIAL_DB, HALF), (FULL_DB, ALL)):
        yield at_least("SQNR of the logits", found.sqnr_db, least, needed_for, unit="dB", hint=found.hint())


def _layers(work: CalibrationWork) -> Iterator[Criterion]:
    (integer, floating), network = int8_layers(work.plan.layers), work.network
    missing = max(network["int8"] - len(integer), len(floating) - network["float"])
    names = ", ".join(name[:60] for name in floating[:3]) + (" and others" if len(floating) > 3 else "") or "none"
    hint = "A layer becomes INT8 when both of its inputs, activation and weight, come out of a Q/DQ pair. Which have one?"
    found = f"{len(integer)} of {len(integer) + len(floating)}; in float: {names}"
    for most, needed_for in ((PARTIAL_FLOAT, HALF), (FULL_FLOAT, ALL)):
        bound = f"at least {network['int8'] - most} of {network['int8']}"
        yield Criterion("layers with weights in INT8", found, bound, missing <= most, needed_for, hint)


def kernels(work: CalibrationWork) -> Iterator[Criterion]:
    """The layers with weights that compute on integers, from the layer table of the new engine, as far as it answers like float."""
    in_int8, *others = _layers(work)
    yield from (in_int8, *others)
    layers, network = work.plan.layers, work.network
    copies = max(1, round(weights(layers) / network["weights"]))  # each profile may have kernels of its own
    copies = min(copies, len(work.files[1].profiles) or 1)
    held = [weights(layers) // copies] + [weights_in_layers(layers) // copies] * bool(in_int8.met)
    same = SAME_WEIGHTS * network["weights"] <= min(held) <= max(held) <= network["weights"] / SAME_WEIGHTS
    hint = "Is it another network? Insert the Q/DQ pairs into the one that the notebook exports."
    yield Criterion("weights of the engine", f"{min(held):,}", f"about {network['weights']:,}", same, HALF, hint)
    if in_int8.met and same:
        yield from _decibels(work.quality)


def speed(work: CalibrationWork) -> Iterator[Criterion]:
    """PyTorch, the reference and the submission in turn, both engines in their fastest form."""
    if all_met(list(sqnr(work))) is None:
        yield Criterion("task 2", "not decided", "full points", None, HALF, code=UNUSUAL)
        return
    if not work.right:
        raise EngineError("the speed is not measured before task 2 has full points and task 3 has half of them")
    if onnx_model.wants_lowering(work.examiner) and not lowering_helps():
        yield Criterion("speed", "not measured, because this CPU has no VNNI", "as for the kernels", True, HALF)
        yield from kernels(work)
        return
    eager, answered = work.engines
    subjects = {"eager": eager}
    if not absent(reference):
        with ours():
            plan = onnx_model.runnable(work.reference, reference.recipe(), work.examiner)
        subjects["reference"] = work.enter_context(work.examiner.reference(plan))
    plan = onnx_model.runnable(work.graph, work.files[1], work.examiner, work.plan)
    yours = work.enter_context(work.examiner.engine(plan))
    images = work.fresh.images[: 8 * BATCH]
    share = argmax_agreement(logits(answered, images, [BATCH]), logits(yours, images, [BATCH]))
    hint = "Each pair that insert_qdq would not place costs a round trip to memory. Are there pairs on biases?"
    name = "share of the answers that the copy lowered for ONNX Runtime keeps"
    yield at_least(name, share, SAME_ANSWERS, HALF, hint=hint)
    if share >= SAME_ANSWERS:
        rng = work.rng()
        size = batch_sizes(rng, range(BATCH, 2 * BATCH + 1))

        def feeds() -> dict[str, np.ndarray]:
            # the images that were checked, so that an engine cannot detect whether it is timed
            return {"image": work.fresh.images[rng.choice(FRESH_IMAGES, size(), replace=False)]}

        work.comparison = race({**subjects, "yours": yours}, feeds, SPEED, work.examiner, floor_db=FLOOR_DB)
        yield from SPEED.criteria(work.comparison.latencies(), hint)
