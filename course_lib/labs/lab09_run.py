"""One run of lab 09: four detectors in their workers look at one new video."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

import numpy as np

from course_lib.engines import ModelSource, Plan
from course_lib.errors import BuildError
from course_lib.labs import lab09_reference, lab09_verdict, lowering
from course_lib.labs.base import Bench
from course_lib.labs.handed_in import missing
from course_lib.labs.lab09_pipeline import Recording, Subject, record
from course_lib.labs.lab09_settings import Settings
from course_lib.labs.lab09_trial import Trial
from course_lib.labs.reference import ours
from course_lib.models.digit_video import video
from course_lib.recipe import Recipe

GIVEN = ModelSource("course_lib.models:detector")
_FRAME_S = 0.03  # what all detectors and passes take for a frame, on a CPU
_EVERY_OF_FIRST = 4  # of the first version only the median time of a call is used: a part of the frames will do


def run(folder: Path, bench: Bench, frames: int) -> tuple[Trial, Plan]:
    """Build a hand-in and show it, the reference, the first version and PyTorch's detector a video of so many frames.

    Returns:
        What they answered, and the plan that NVIDIA's compiler made of the hand-in.

    Raises:
        RecipeError: settings.toml or recipe.toml is missing or wrong.
        BuildError: the model is missing or refused.
        EngineError: the engine refuses the frames, or answers with something else than detections.
    """
    settings = Settings.load(folder / "settings.toml")
    recipe, plan = _built(folder, bench)
    seed = bench.seed if bench.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
    scenes = list(itertools.islice(video(seed), frames))
    bench.begins(f"detect, latency and frames: four detectors on {frames} new frames", frames * _FRAME_S)
    with ExitStack() as stack:
        yours = stack.enter_context(bench.engine(_runnable(folder, recipe, bench, plan)))
        eager = stack.enter_context(bench.baseline(GIVEN))
        with ours():
            theirs, slow = _reference(bench), _first(bench)
            first = stack.enter_context(bench.reference(slow))
        subjects = {
            "eager": Subject(eager, lab09_reference.SETTINGS),
            "first": Subject(first, lab09_reference.FIRST.model_copy(update={"every": _EVERY_OF_FIRST})),
            "reference": Subject(stack.enter_context(bench.reference(theirs)), lab09_reference.SETTINGS),
            "yours": Subject(yours, settings),
        }

        def decided(recordings: dict[str, Recording]) -> bool:
            return lab09_verdict.decided(Trial(scenes, settings, recordings))

        return Trial(scenes, settings, bench.measured(lambda: record(subjects, scenes, decided))), plan


def _built(folder: Path, bench: Bench) -> tuple[Recipe, Plan]:
    for name in ("model.onnx", "recipe.toml"):
        if not (folder / name).is_file():
            raise BuildError(missing(name))
    recipe = Recipe.load(folder / "recipe.toml")
    return recipe, bench.build(folder / "model.onnx", recipe)


def _runnable(folder: Path, recipe: Recipe, bench: Bench, plan: Plan | None = None) -> Plan:
    """What the bench's runner executes; for ONNX Runtime on a CPU, INT8 is lowered first."""
    model = folder / "model.onnx"
    if recipe.precision == "int8" and lowering.wanted(bench):
        return lowering.runnable(model, recipe, bench)
    return bench.runnable(model, recipe, plan)


@lru_cache(maxsize=1)
def _reference(bench: Bench) -> Plan:
    with tempfile.TemporaryDirectory() as scratch:
        lab09_reference.write(Path(scratch))
        return _runnable(Path(scratch), lab09_reference.recipe(), bench)


@lru_cache(maxsize=1)
def _first(bench: Bench) -> Plan:
    """The version that the service starts from: exported as it was shown, and nothing else."""
    with tempfile.TemporaryDirectory() as scratch:
        model, recipe = Path(scratch, "model.onnx"), lab09_reference.recipe(lab09_reference.FIRST.size, "fp32")
        model.write_bytes(lab09_reference.exported(lab09_reference.FIRST.size).SerializeToString())
        return bench.runnable(model, recipe)
