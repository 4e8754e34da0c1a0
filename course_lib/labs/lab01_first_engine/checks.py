"""What is looked at in each task of lab 01: the profile, answers to fresh images, and one race."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from course_lib.engines import ModelSource, Plan
from course_lib.engines.cache.plan_cache import PlanCache
from course_lib.errors import EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_least, equals
from course_lib.labs.framework.examination import TimedWorker, ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.racing import (
    Pace,
    Tiers,
    accepted_batches,
    batch_sizes,
    by_batch_size,
    check_every_size,
    fresh_images,
    logits,
    race,
    worst_decibels,
)
from course_lib.labs.lab01_first_engine import reference
from course_lib.models import Digits
from course_lib.recipe import Recipe, ShapeRange

SERVICE = (1, 32)  # smallest and largest batch that the service of the story sends
USUAL = 1  # the batch that it sends most often
GIVEN = ModelSource("course_lib.models:classifier", ("wide",))
FRESH_IMAGES = 512

# Points for accuracy: at most this many percentage points below PyTorch on the same fresh images.
FULL_LOSS, PARTIAL_LOSS = 0.5, 3.0
# The engine must compute the given network, not one that happens to get digits right: signal-to-noise of its logits against
# PyTorch's. Measured: FP16 65 dB, INT8 with min-max ranges 34, the small classifier, which is as accurate, 10.
MIN_SQNR_DB = 18.0
SPEED = Tiers(full=Pace(of_reference=0.85, over_eager=1.15), partial=Pace(of_reference=0.5, over_eager=1.05))


class FirstEngineWork(Work):
    """A submission of lab 01: PyTorch and the engine, each in its worker, on the same fresh images."""

    @step
    def recipe(self) -> Recipe:
        """The recipe. Its profiles are the engine's, because the builder did not reject any part."""
        assert self.plan
        return self.files[1]

    @step
    def accepted(self) -> list[int]:
        """The service's batches that the engine accepts."""
        return accepted_batches(self.recipe, (1, 32, 32), SERVICE[1])

    @step
    def fresh(self) -> Digits:
        """Fresh images."""
        return fresh_images(self.examiner, FRESH_IMAGES)

    @step
    def engines(self) -> tuple[TimedWorker, TimedWorker]:
        """PyTorch eager and the submission, both loaded."""
        started = self.enter_context
        with ThreadPoolExecutor() as threads:
            eager = threads.submit(lambda: started(self.examiner.baseline(GIVEN)))
            plan = self.examiner.runnable(self.graph, self.recipe, self.plan)
            yours = threads.submit(lambda: started(self.examiner.engine(plan)))
        return eager.result(), yours.result()

    @step
    def answers(self) -> list[Criterion]:
        """What the answers to fresh images show: task 2 is decided by it, and the race waits for it."""
        return list(_answers(self))


def profile(work: FirstEngineWork) -> Iterator[Criterion]:
    """What the new engine accepts, and what it is tuned for."""
    low, high = SERVICE
    accepted, covered = work.accepted, ", ".join(f"{one.min[0]} to {one.max[0]}" for one in _ranges(work.recipe)) or "nothing"
    rejected = [n for n in range(low, high + 1) if n not in accepted]
    symptom = (
        f"Batch {rejected[0]} is rejected: your profile covers {covered}. The service sends {low} to {high} images."
        if rejected
        else ""
    )
    hint = "The engine rejects a shape outside [min, max] at run time. Which of your three shapes has to change?"
    for least, needed_for in ((high // 2, HALF), (high, ALL)):
        met, bound = len(accepted) >= least, f"{least} of {high} sizes"
        yield Criterion("accepted batches", covered, bound, met, needed_for, hint, symptom=symptom)
    tuned = next((one.opt[0] for one in _ranges(work.recipe) if one.contains((USUAL, 1, 32, 32))), 0)
    hint = "TensorRT chooses the fastest kernels for opt. Which batch does the service send most often?"
    if tuned:
        yield equals("tuned batch", tuned, USUAL, bound="the batch that the service sends most often", hint=hint)


def accuracy(work: FirstEngineWork) -> Iterator[Criterion]:
    """The answers to fresh images, and the digits that they name."""
    yield from work.answers


def _answers(work: FirstEngineWork) -> Iterator[Criterion]:
    """Fresh images through PyTorch and the engine, at several batch sizes, two of which cannot be known in advance."""
    drawn = work.rng().integers(SERVICE[0] + 1, SERVICE[1], 2)
    batches = [n for n in (1, 3, 8, 32, *map(int, drawn)) if n in work.accepted]
    if not batches:
        raise EngineError("the engine does not accept any batch of 1, 3, 8 or 32 images")
    eager, yours = work.engines
    work.examiner.begins("accuracy: fresh images through PyTorch and your engine", 5)
    want = np.array_split(logits(eager, work.fresh.images, [max(batches)]), len(batches))
    have = by_batch_size(yours, work.fresh.images, batches)
    sqnr = worst_decibels(want, have)
    hint = "Is it the same network? Export the given classifier in eval mode, and compare the logits of a batch of 3."
    yield at_least("SQNR of the logits at the worst batch size", sqnr, MIN_SQNR_DB, HALF, unit="dB", hint=hint)
    theirs, right = (100 * float((np.concatenate(each).argmax(1) == work.fresh.labels).mean()) for each in (want, have))
    work.figures |= {"accuracy_eager": theirs / 100, "accuracy": right / 100, "sqnr_db": sqnr}
    hint = "Which step changed the numbers: the export, the cast, or the build? Compare the logits after each step."
    found = f"{right:.1f} % of {FRESH_IMAGES} fresh images (PyTorch {theirs:.1f} %)"
    for most, needed_for in ((PARTIAL_LOSS, HALF), (FULL_LOSS, ALL)):
        bound = f"at most {most:g} percentage points less than PyTorch"
        yield Criterion("right answers", found, bound, theirs - right <= most, needed_for, hint)
    if sqnr >= MIN_SQNR_DB and (others := [n for n in work.accepted if n not in batches]):
        check_every_size(eager, yours, work.fresh.images, others, MIN_SQNR_DB)


def speed(work: FirstEngineWork) -> Iterator[Criterion]:
    """PyTorch, the reference and the submission in turn, on digits, so that an engine cannot tell that it is timed."""
    if any(criterion.met is not True for criterion in work.answers if criterion.needed_for == HALF):
        symptom = "the speed is not measured, because the answers are wrong."
        yield Criterion("right answers", "no", "yes", False, HALF, "Solve the task before this one first.", symptom=symptom)
        return
    eager, yours = work.engines
    others = "PyTorch" if absent(reference) else "PyTorch, the reference"
    work.examiner.begins(f"speed: {others} and your engine, interleaved", work.examiner.measure_s)
    subjects = {"eager": eager, "yours": yours}
    if not absent(reference):
        subjects["reference"] = work.enter_context(work.examiner.reference(_reference_plan(work)))
    rng = work.rng()
    size = batch_sizes(rng, work.accepted)

    def images() -> dict[str, np.ndarray]:
        n = size()
        begin = int(rng.integers(FRESH_IMAGES - n))
        return {"image": work.fresh.images[begin : begin + n]}

    hint = "Which number type is fast on the machine that runs your engine? Measure the variants alternately."
    work.comparison = race(subjects, images, SPEED, work.examiner, floor_db=MIN_SQNR_DB)
    yield from SPEED.criteria(work.comparison.latencies(), hint)


def _reference_plan(work: FirstEngineWork) -> Plan:
    """The reference's engine. Its plan is kept, so TensorRT builds it once, and a whole class is compared with the same engine."""
    examiner, folder = work.examiner, work.scratch / "reference"
    folder.mkdir()
    with ours():
        work.lab.write_reference(folder, opset=examiner.opset)
        model, recipe = folder / "model.onnx", reference.recipe(SERVICE)
        return PlanCache().build(model, recipe, backend=examiner.runner, time_limit_s=examiner.build_s).plan


def _ranges(recipe: Recipe) -> list[ShapeRange]:
    return [one["image"] for one in recipe.profiles if "image" in one.root]
