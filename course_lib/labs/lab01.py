"""Lab 01, first engine: the digits classifier from PyTorch to an engine that is right, fast, and fits its traffic."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.engines import ModelSource, Plan
from course_lib.errors import BuildError, CourseError, EngineError, PrecisionError, RecipeError
from course_lib.labs import race
from course_lib.labs.answers import decibels, fresh_images, logits
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task, TimedWorker
from course_lib.labs.handed_in import missing
from course_lib.labs.race import Pace, Tiers
from course_lib.labs.reference import reference_engine
from course_lib.models import Digits
from course_lib.recipe import Profile, Recipe

SERVICE = (1, 32)  # smallest and largest batch that the service of the story sends
FRESH_IMAGES = 512

# Points for accuracy: at most this many percentage points below PyTorch on the same fresh images.
FULL_LOSS, PARTIAL_LOSS = 0.5, 3.0
# The engine must compute the given network, not one that happens to get digits right: signal-to-noise of its logits against
# PyTorch's. Measured: FP16 65 dB, INT8 with min-max ranges 34, the small classifier, which is as accurate, 10.
MIN_SQNR_DB = 18.0
SPEED = Tiers(full=Pace(of_reference=0.85, over_eager=1.15), partial=Pace(of_reference=0.5, over_eager=1.05))
_HINT_FOR_SPEED = "Which number type is fast on the machine that runs your engine? Measure the variants side by side."


class FirstEngine(Lab):
    """Hand in `model.onnx` and `recipe.toml`."""

    name = "lab01_first_engine"
    title = "Lab 01: your first engine"
    artefacts: ClassVar = {"model.onnx": 64 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("profile", "Promise what the service needs", 3),
        Task("accuracy", "The same answers as PyTorch", 3),
        Task("speed", "Faster than PyTorch", 4),
    )
    source = ModelSource("course_lib.models:classifier", ("wide",))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """FP32, as exported, tuned for the batch that comes most often."""
        (folder / "model.onnx").write_bytes(_exported(opset))
        reference_recipe().save(folder / "recipe.toml")

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Build, then answer fresh images, then race. A step that fails takes the points of those that stand on it."""
        try:
            recipe, plan = self._build(folder, bench)
        except (RecipeError, BuildError) as error:
            return Examination(self.nothing(str(error), _hint_for_build(error)))
        profile = self._profile(recipe)
        if only == "profile":
            return Examination((profile,), plan)
        try:
            return self._run(folder, bench, recipe, plan, profile, with_speed=only in (None, "speed"))
        except (EngineError, BuildError) as error:
            hint = "Load your engine in the notebook and run the same batch: the error appears there too."
            return Examination((profile, *self.nothing(str(error), hint, ("accuracy", "speed"))), plan)

    def _build(self, folder: Path, bench: Bench) -> tuple[Recipe, Plan]:
        for name in self.artefacts:
            if not (folder / name).is_file():
                raise BuildError(missing(name))
        recipe = Recipe.load(folder / "recipe.toml")
        return recipe, bench.build(folder / "model.onnx", recipe)

    def _profile(self, recipe: Recipe) -> Outcome:
        """Which batches the engine that was just built accepts. Its profiles are the recipe's: the builder refused no part."""
        low, high = SERVICE
        accepted = [n for n in range(low, high + 1) if _accepts(recipe, n)]
        if len(accepted) == high:
            return self.outcome("profile", "full", f"The engine was built and accepts every batch from {low} to {high}.")
        refused = next(n for n in range(low, high + 1) if n not in accepted)
        message = f"Batch {refused} is refused: {_ends(recipe)}. The service sends {low} to {high} images."
        hint = "A shape outside [min, max] is refused at run time. Which of your three shapes has to change?"
        if len(accepted) >= high // 2:
            return self.outcome("profile", "partial", message, hint, share=0.5)
        return self.outcome("profile", "none", message, hint)

    def _run(
        self, folder: Path, bench: Bench, recipe: Recipe, plan: Plan, profile: Outcome, *, with_speed: bool
    ) -> Examination:
        drawn = bench.rng().integers(SERVICE[0] + 1, SERVICE[1], 2)  # nobody knows all sizes that are asked for
        batches = [n for n in (1, 3, 8, 32, *map(int, drawn)) if _accepts(recipe, n)]
        if not batches:
            hint = "min is the smallest shape that the engine accepts, max the largest."
            nothing = self.nothing("The engine accepts no batch of 1, 3, 8 or 32 images.", hint, ("accuracy", "speed"))
            return Examination((profile, *nothing), plan)
        with ExitStack() as stack:
            eager = stack.enter_context(bench.baseline(self.source))
            runnable = bench.runnable(folder / "model.onnx", recipe, plan)
            candidate = stack.enter_context(bench.engine(runnable))
            fresh = fresh_images(bench, FRESH_IMAGES)
            bench.begins("accuracy: fresh images through PyTorch and your engine", 5)
            accuracy, figures = self._accuracy(eager, candidate, batches, fresh)
            if accuracy.tier == "none" or not with_speed:
                wrong = "A wrong engine has no speed: get the answers right first."
                speed = () if not with_speed else self.nothing(wrong, accuracy.hint, ("speed",))
                return Examination((profile, accuracy, *speed), plan, figures=figures)
            bench.begins("speed: PyTorch, the reference and your engine, interleaved", bench.measure_s)
            reference = stack.enter_context(reference_engine(self, bench, reference_recipe()))
            rng = bench.rng()

            def images() -> dict[str, np.ndarray]:
                begin = int(
                    rng.integers(FRESH_IMAGES - batches[0])
                )  # digits, as before: an engine cannot tell that it is timed
                return {"image": fresh.images[begin : begin + batches[0]]}

            comparison = bench.measured(
                lambda: race.race(eager, reference, candidate, images, SPEED, time_limit_s=bench.measure_s)
            )
        outcomes = (profile, accuracy, race.outcome(self, comparison, SPEED, _HINT_FOR_SPEED))
        return Examination(outcomes, plan, comparison, figures)

    def speed_tier(self, latencies: Mapping[str, np.ndarray]) -> str:
        """See `Lab.speed_tier`."""
        return SPEED.tier(latencies)[0]

    def _accuracy(
        self, eager: TimedWorker, candidate: TimedWorker, batches: list[int], fresh: Digits
    ) -> tuple[Outcome, dict[str, float]]:
        """Classify fresh images with both, in batches of every size, and compare answers and logits."""
        want, have = (logits(engine, fresh.images, batches) for engine in (eager, candidate))
        eager_right, right = (float((answers.argmax(1) == fresh.labels).mean()) for answers in (want, have))
        sqnr = decibels(want, have)
        figures = {"accuracy_eager": eager_right, "accuracy": right, "sqnr_db": sqnr}
        loss = 100 * (eager_right - right)
        found = f"{100 * right:.1f} % of {FRESH_IMAGES} fresh images right, PyTorch {100 * eager_right:.1f} %; logits at {sqnr:.0f} dB."
        if sqnr < MIN_SQNR_DB:
            hint = "Is it the same network? Export the given classifier in eval mode, and look at the logits of a batch of 3."
            return self.outcome(
                "accuracy", "none", f"{found} At least {MIN_SQNR_DB:g} dB count as the same network.", hint
            ), figures
        if loss <= FULL_LOSS:
            return self.outcome("accuracy", "full", found), figures
        hint = "Which step changed the numbers: the export, the cast, or the build? Compare logits after each."
        tier = "partial" if loss <= PARTIAL_LOSS else "none"
        return self.outcome("accuracy", tier, f"{found} At most {FULL_LOSS} points may be lost.", hint, share=0.5), figures


def reference_recipe() -> Recipe:
    """One profile over the service's range, tuned for the single image that it sends most often."""
    low, high = SERVICE
    return Recipe(profiles=(Profile(image={"min": (low, 1, 32, 32), "opt": (1, 1, 32, 32), "max": (high, 1, 32, 32)}),))


@cache
def _exported(opset: int | None) -> bytes:
    from course_lib.models import classifier, export_onnx

    return export_onnx(classifier("wide"), opset=opset).SerializeToString()


def _accepts(recipe: Recipe, batch: int) -> bool:
    return any(p["image"].contains((batch, 1, 32, 32)) for p in recipe.profiles if "image" in p.root)


def _ends(recipe: Recipe) -> str:
    ranges = [p["image"] for p in recipe.profiles if "image" in p.root]
    spelled = ", ".join(f"{r.min[0]} to {r.max[0]}" for r in ranges)
    return f"your profiles cover {spelled}" if len(ranges) > 1 else f"your profile covers {spelled or 'nothing'}"


def _hint_for_build(error: CourseError) -> str:
    if isinstance(error, PrecisionError):
        return "`precision` is a promise about the graph. Which function of the course changes the graph's number types?"
    if "is missing" in str(error):
        return "Task 1 writes model.onnx and task 2 writes recipe.toml: solve them first, then run their cells again."
    if "is always" in str(error):
        return "The exported batch is fixed. Export again with a dynamic batch: then the profile decides which batches are accepted."
    if "profile" in str(error):
        return "The exported batch is dynamic, so the recipe needs a profile: min, opt and max for `image`."
    return "Build it in the notebook with course_lib.engines.build: the same error appears there."


lab = FirstEngine()
