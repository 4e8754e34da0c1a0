"""Lab 01, first engine: the digits classifier from PyTorch to an engine that is accurate, fast, and built for its traffic."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.engines import ModelSource, Plan
from course_lib.errors import FIXED_DIMENSION, MISSING_FILE, PRECISION, PROFILE, BuildError, EngineError, RecipeError
from course_lib.labs.framework import one_graph, racing
from course_lib.labs.framework.answers import (
    accepted_batches,
    by_batch_size,
    check_every_size,
    check_pace,
    fresh_images,
    logits,
    worst_decibels,
)
from course_lib.labs.framework.examination import Examination, Examiner, TimedWorker
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.racing import Pace, Tiers
from course_lib.labs.framework.reference import absent, reference_engine
from course_lib.labs.framework.submission_files import model_and_recipe
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab01_first_engine import reference as lab01_reference
from course_lib.models import Digits
from course_lib.recipe import Recipe

SERVICE = (1, 32)  # smallest and largest batch that the service of the story sends
USUAL = 1  # the batch that it sends most often
FRESH_IMAGES = 512

# Points for accuracy: at most this many percentage points below PyTorch on the same fresh images.
FULL_LOSS, PARTIAL_LOSS = 0.5, 3.0
# The engine must compute the given network, not one that happens to get digits right: signal-to-noise of its logits against
# PyTorch's. Measured: FP16 65 dB, INT8 with min-max ranges 34, the small classifier, which is as accurate, 10.
MIN_SQNR_DB = 18.0
SPEED = Tiers(full=Pace(of_reference=0.85, over_eager=1.15), partial=Pace(of_reference=0.5, over_eager=1.05))
_HINT_FOR_SPEED = "Which number type is fast on the machine that runs your engine? Measure the variants alternately."


class FirstEngine(Lab):
    """The submission is `model.onnx` and `recipe.toml`."""

    name = "lab01_first_engine"
    title = "Lab 01: your first engine"
    artifacts: ClassVar = {"model.onnx": 64 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("profile", "A profile for the traffic", 3),
        Task("accuracy", "The same answers as PyTorch", 3),
        Task("speed", "Faster than PyTorch", 4),
    )
    build_hints: ClassVar = {
        PRECISION: "`precision` is a statement about the graph. Which function of the course changes the graph's number types?",
        MISSING_FILE: "Task 1 writes model.onnx and task 2 writes recipe.toml. Solve them, then run their cells again.",
        FIXED_DIMENSION: "The exported batch is fixed. Export again with a dynamic batch. Then the profile decides which batches the "
        "engine accepts.",
        PROFILE: "The exported batch is dynamic, so the recipe needs a profile: min, opt and max for `image`.",
    }
    speed = SPEED
    timed_tasks = ("speed",)
    source = ModelSource("course_lib.models:classifier", ("wide",))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """FP32, as exported, tuned for the most frequent batch."""
        lab01_reference.write(folder, SERVICE, opset)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Build, run fresh images, then measure the speed. A step that fails also costs the points of later steps."""
        with tempfile.TemporaryDirectory() as scratch:
            return self._examined(folder, Path(scratch), examiner, only)

    def _examined(self, folder: Path, scratch: Path, examiner: Examiner, only: str | None) -> Examination:
        try:
            model, recipe = model_and_recipe(folder)
            model = one_graph.fixed(model, scratch, examiner)
            plan = examiner.build(model, recipe)
        except (RecipeError, BuildError) as error:
            return Examination(self.failed_build(error))
        profile = self._profile(recipe)
        if only == "profile":
            return Examination((profile,), plan)
        try:
            return self._run(model, examiner, recipe, plan, profile, with_speed=only in (None, "speed"))
        except (EngineError, BuildError) as error:
            hint = "Load your engine in the notebook and run the same batch: the error appears there too."
            return Examination((profile, *self.zero_outcomes(error, hint, ("accuracy", "speed"))), plan)

    def _profile(self, recipe: Recipe) -> Outcome:
        """What the new engine accepts and is tuned for. Its profiles are the recipe's, because the builder did not reject any part."""
        low, high = SERVICE
        accepted = _accepted(recipe)
        if len(accepted) == high:
            if (tuned := _tuned_for(recipe)) != USUAL:
                said = f"The profile for one image is tuned for {tuned}: opt is a batch of {tuned}, expected {USUAL}."
                hint = "TensorRT chooses the fastest kernels for opt. Which batch does the service send most often?"
                return self.outcome("profile", "partial", said, hint, share=0.5)
            said = f"The engine was built, accepts every batch from {low} to {high}, and is tuned for one image."
            return self.outcome("profile", "full", said)
        rejected = next(n for n in range(low, high + 1) if n not in accepted)
        message = f"Batch {rejected} is rejected: {_ends(recipe)}. The service sends {low} to {high} images."
        hint = "The engine rejects a shape outside [min, max] at run time. Which of your three shapes has to change?"
        if len(accepted) >= high // 2:
            return self.outcome("profile", "partial", message, hint, share=0.5)
        return self.outcome("profile", "none", message, hint)

    def _run(
        self, model: Path, examiner: Examiner, recipe: Recipe, plan: Plan, profile: Outcome, *, with_speed: bool
    ) -> Examination:
        drawn = examiner.rng().integers(SERVICE[0] + 1, SERVICE[1], 2)  # so that not all sizes are known in advance
        accepted = _accepted(recipe)
        batches = [n for n in (1, 3, 8, 32, *map(int, drawn)) if n in accepted]
        if not batches:
            hint = "min is the smallest shape that the engine accepts, max the largest."
            nothing = self.zero_outcomes(
                "The engine does not accept any batch of 1, 3, 8 or 32 images.", hint, ("accuracy", "speed")
            )
            return Examination((profile, *nothing), plan)
        with ExitStack() as stack:
            with (
                ThreadPoolExecutor() as threads
            ):  # each worker is in the stack as soon as it runs, so a failure of one closes both
                started = threads.submit(lambda: stack.enter_context(examiner.baseline(self.source)))
                loaded = threads.submit(lambda: stack.enter_context(examiner.engine(examiner.runnable(model, recipe, plan))))
                fresh = fresh_images(examiner, FRESH_IMAGES)
            eager, candidate = started.result(), loaded.result()
            check_pace(eager, candidate, fresh.images[: min(accepted)])
            examiner.begins("accuracy: fresh images through PyTorch and your engine", 5)
            accuracy, figures = self._accuracy(eager, candidate, batches, fresh)
            if accuracy.tier != "none" and (others := [n for n in accepted if n not in batches]):
                check_every_size(eager, candidate, fresh.images, others, MIN_SQNR_DB)
            if accuracy.tier == "none" or not with_speed:
                wrong = "The speed is not measured, because the answers are wrong."
                speed = () if not with_speed else self.zero_outcomes(wrong, accuracy.hint, ("speed",))
                return Examination((profile, accuracy, *speed), plan, figures=figures)
            examiner.begins("speed: PyTorch, the reference and your engine, interleaved", examiner.measure_s)
            reference = None
            if not absent(lab01_reference):
                reference = stack.enter_context(reference_engine(self, examiner, lab01_reference.recipe(SERVICE)))
            rng = examiner.rng()

            size = racing.batch_sizes(rng, accepted)

            def images() -> dict[str, np.ndarray]:
                n = size()
                begin = int(rng.integers(FRESH_IMAGES - n))  # digits, as before: an engine cannot tell that it is timed
                return {"image": fresh.images[begin : begin + n]}

            comparison = racing.race(eager, reference, candidate, images, SPEED, examiner, floor_db=MIN_SQNR_DB)
        outcomes = (profile, accuracy, racing.outcome(self, comparison, SPEED, _HINT_FOR_SPEED))
        return Examination(outcomes, plan, comparison, figures)

    def _accuracy(
        self, eager: TimedWorker, candidate: TimedWorker, batches: list[int], fresh: Digits
    ) -> tuple[Outcome, dict[str, float]]:
        """Classify fresh images with both, and compare the answers, and the logits for each batch size."""
        with ThreadPoolExecutor() as threads:
            answered = threads.submit(by_batch_size, candidate, fresh.images, batches)
            want = np.array_split(logits(eager, fresh.images, [max(batches)]), len(batches))
        have = answered.result()
        sqnr = worst_decibels(want, have)
        eager_right, right = (float((np.concatenate(each).argmax(1) == fresh.labels).mean()) for each in (want, have))
        figures = {"accuracy_eager": eager_right, "accuracy": right, "sqnr_db": sqnr}
        loss = 100 * (eager_right - right)
        found = (
            f"{100 * right:.1f} % of {FRESH_IMAGES} fresh images are right; PyTorch has {100 * eager_right:.1f} %. "
            f"The logits have at least {sqnr:.0f} dB SQNR at every batch size."
        )
        if sqnr < MIN_SQNR_DB:
            hint = "Is it the same network? Export the given classifier in eval mode, and compare the logits of a batch of 3."
            return self.outcome("accuracy", "none", f"{found} The same network has at least {MIN_SQNR_DB:g} dB.", hint), figures
        if loss <= FULL_LOSS:
            return self.outcome("accuracy", "full", found), figures
        hint = "Which step changed the numbers: the export, the cast, or the build? Compare the logits after each step."
        tier = "partial" if loss <= PARTIAL_LOSS else "none"
        message = f"{found} Full points need at most {FULL_LOSS} percentage points less than PyTorch."
        return self.outcome("accuracy", tier, message, hint, share=0.5), figures


def _accepted(recipe: Recipe) -> list[int]:
    return accepted_batches(recipe, (1, 32, 32), SERVICE[1])


def _tuned_for(recipe: Recipe) -> int:
    """The batch for which the profile is tuned that takes the usual batch: an engine takes the first one that accepts it."""
    ranges = (profile["image"] for profile in recipe.profiles if "image" in profile.root)
    return next((one.opt[0] for one in ranges if one.contains((USUAL, 1, 32, 32))), 0)


def _ends(recipe: Recipe) -> str:
    ranges = [p["image"] for p in recipe.profiles if "image" in p.root]
    spelled = ", ".join(f"{r.min[0]} to {r.max[0]}" for r in ranges)
    return f"your profiles cover {spelled}" if len(ranges) > 1 else f"your profile covers {spelled or 'nothing'}"


lab = FirstEngine()
