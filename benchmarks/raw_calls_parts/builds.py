"""Labs 03 and 06 on a real TensorRT: a recipe with a timing cache, a learner's choice among engines, and a trained INT8 network."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import numpy as np

from benchmarks.raw_calls_parts.answers import requests_of
from benchmarks.raw_calls_parts.running import FOLDER, SETTINGS, attempt, built, defined, trt
from benchmarks.recording import Row
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine
from course_lib.engines.backends.tensorrt.timing_cache import FOLDER_VARIABLE

LEVELS = (0, 1, 2)  # optimization levels of the engines that lab 03's code times
_FP32 = {"precision": "fp32", "targets": []}  # lab 03's recipe is for another network


def lab03() -> Iterator[Row]:
    """Its recipe in three builds, and its code on times that a GPU takes."""
    yield attempt("lab03: recipe.toml", rebuilt)
    yield attempt("lab03: timing.py", timed)


def rebuilt(code: str) -> Row:
    """Builds with the recipe: two with the timing cache, which is empty before the first, and one without."""
    os.environ[FOLDER_VARIABLE] = tempfile.mkdtemp(dir=FOLDER)
    cold, warm = built("lab03", **_FP32), built("lab03", **_FP32)
    os.environ[FOLDER_VARIABLE] = ""
    without = built("lab03", **_FP32)
    tactics = [[(layer.name, layer.tactic) for layer in plan.layers] for plan in (cold, warm, without)]
    seconds = {"cold_s": cold.build_seconds, "warm_s": warm.build_seconds, "without_s": without.build_seconds}
    recipe = {key: cold.recipe[key] for key in ("optimization_level", "workspace_mib")}
    same = {"same_tactics_with_cache": tactics[0] == tactics[1], "same_tactics_without": tactics[0] == tactics[2]}
    return {"right": tactics[0] == tactics[1], **recipe, "compiler": seconds, **same, "layers": len(tactics[0])}


def timed(code: str) -> Row:
    """The learner's choice among three real engines."""
    images = {"image": np.random.default_rng(0).random((SETTINGS["batch"], 1, 32, 32), dtype=np.float32)}
    engines = {f"level {level}": TensorRTEngine(trt, built("lab03", **_FP32, optimization_level=level)) for level in LEVELS}
    functions = defined(code)
    order = functions["order"]([*engines][::-1], 15 * len(engines))
    chosen, _ = functions["fastest"]([(name, engines[name].time_ms(images)) for name in order])
    runs = range(SETTINGS["runs"])
    times = {name: float(np.median([engine.time_ms(images) for _ in runs])) for name, engine in engines.items()}
    over = times[chosen] / min(times.values())
    return {"right": chosen in times, "chosen": chosen, "over_fastest": over, "ms": times, "runs": len(order)}


def lab06() -> Iterator[Row]:
    """The trained network's file in INT8, called by exercise 10.1's answer."""
    yield attempt("lab06: model.onnx", quantized)


def quantized(code: str) -> Row:
    given, plan = np.load(FOLDER / "lab06.npz"), built("lab06")
    expected = given["logits"]
    run = requests_of("exercise 10.1", plan, "image", given["images"].shape, "logits", expected.shape)
    found = run(given["images"])
    same = float((found.argmax(1) == expected.argmax(1)).mean())
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    row = {"kernels": dict(plan.layers.dtype_counts()), "build_s": plan.build_seconds}
    return {"right": same >= 0.98, "same_classes": same, "relative_error": error, **row}
