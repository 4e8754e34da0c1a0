"""One run of lab 15: four detectors, each in its worker, on one new video."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path

import numpy as np

from course_lib.engines import ModelSource, Plan
from course_lib.labs.framework import lowering, one_graph
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.reference import absent, ours
from course_lib.labs.framework.submission_files import model_and_recipe
from course_lib.labs.lab15_capstone import given, reference
from course_lib.labs.lab15_capstone.judge import judgment
from course_lib.labs.lab15_capstone.judge.pipeline import Recording, Subject, record
from course_lib.labs.lab15_capstone.judge.trial import REFERENCE_SETTINGS, Trial
from course_lib.labs.lab15_capstone.settings import Settings
from course_lib.models.digit_video import video
from course_lib.recipe import Recipe

GIVEN = ModelSource("course_lib.models:detector")
_FRAME_S = 0.03  # what all detectors and passes take for a frame, on a CPU
_EVERY_OF_FIRST = 4  # of the first version only the median time of a call is used: a part of the frames will do


def run(folder: Path, examiner: Examiner, frames: int) -> tuple[Trial, Plan]:
    """Build a submission, and run it, the reference, the first version and PyTorch's detector on a video with this many frames.

    Returns:
        What they answered, and the plan that NVIDIA's compiler made of the submission.

    Raises:
        RecipeError: settings.toml or recipe.toml is missing or wrong.
        BuildError: the model is missing or rejected.
        EngineError: the engine rejects the frames, or answers with something else than detections.
    """
    with tempfile.TemporaryDirectory() as scratch:
        return _run(folder, Path(scratch), examiner, frames)


def _run(folder: Path, scratch: Path, examiner: Examiner, frames: int) -> tuple[Trial, Plan]:
    settings = Settings.load(folder / "settings.toml")
    model, recipe = model_and_recipe(folder)
    model = one_graph.fixed(model, scratch, examiner)
    plan = examiner.build(model, recipe)
    seed = examiner.seed if examiner.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
    scenes = list(itertools.islice(video(seed), frames))
    examiner.begins(f"detect, latency and frames: four detectors on {frames} new frames", frames * _FRAME_S)
    with ExitStack() as stack:
        yours = stack.enter_context(examiner.engine(_runnable(model, recipe, examiner, plan)))
        eager = stack.enter_context(examiner.baseline(GIVEN))
        with ours():
            theirs, slow = _reference(examiner), _first(examiner)
            first = stack.enter_context(examiner.reference(slow))
        subjects = {
            "eager": Subject(eager, REFERENCE_SETTINGS),
            "first": Subject(first, given.FIRST.model_copy(update={"every": _EVERY_OF_FIRST})),
            "reference": Subject(stack.enter_context(examiner.reference(theirs)), REFERENCE_SETTINGS),
            "yours": Subject(yours, settings),
        }

        def decided(recordings: dict[str, Recording]) -> bool:
            return judgment.decided(Trial(scenes, settings, recordings))

        return Trial(scenes, settings, examiner.measured(lambda: record(subjects, scenes, decided))), plan


def _runnable(model: Path, recipe: Recipe, examiner: Examiner, plan: Plan | None = None) -> Plan:
    """The plan that the examiner's runner executes. For ONNX Runtime on a CPU, INT8 is lowered first."""
    if recipe.precision == "int8" and lowering.wanted(examiner):
        return lowering.runnable(model, recipe, examiner)
    return examiner.runnable(model, recipe, plan)


@lru_cache(maxsize=1)
def _reference(examiner: Examiner) -> Plan:
    """The reference's plan. Where it is absent, the given detector takes its place."""
    if absent(reference):
        return _as_exported(REFERENCE_SETTINGS.size, examiner)
    with tempfile.TemporaryDirectory() as scratch:
        reference.write(Path(scratch))
        return _runnable(Path(scratch, "model.onnx"), given.recipe(REFERENCE_SETTINGS.size), examiner)


@lru_cache(maxsize=1)
def _first(examiner: Examiner) -> Plan:
    """The version that the service starts from: exported as the lab shows it, without other changes."""
    return _as_exported(given.FIRST.size, examiner)


def _as_exported(size: int, examiner: Examiner) -> Plan:
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, "model.onnx")
        model.write_bytes(given.exported(size).SerializeToString())
        return examiner.runnable(model, given.recipe(size, "fp32"))
