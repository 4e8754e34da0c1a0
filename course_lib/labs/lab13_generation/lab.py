"""Lab 13, generate: from a decoder that computes every byte again to one with a ring of keys and values that is written in place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.errors import MISSING_FILE, PRECISION, PROFILE
from course_lib.labs.framework.criteria import Task, Tier, tier
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab13_generation import checks


class Generation(Lab):
    """The submission is `decoder.onnx`, `host.py` and `recipe.toml`."""

    name = "lab13_generation"
    title = "Lab 13: generate"
    work_class = checks.GenerationWork
    artifacts: ClassVar = {checks.MODEL: 16 << 20, checks.HOST: 64 << 10, checks.RECIPE: 64 << 10}
    tasks = (
        Task("answers", "The right scores, with a ring", 3, checks.answers),
        Task("loop", "A host that serves requests", 2, checks.loop),
        Task("requests", "Conversations that do not see each other", 1, checks.kept_apart),
        Task("fused", "Fused attention, and a cache in place", 2, checks.fused),
        Task("speed", "The cost of a token", 2, checks.speed),
    )
    timed_tasks = ("speed",)
    build_hints: ClassVar = {
        MISSING_FILE: "The cells of tasks 1, 2 and 4 write decoder.onnx, host.py and recipe.toml. Solve them, then run them again.",
        PRECISION: "The grader turns your float32 graph into FP16 before it compiles: the recipe says fp16.",
        PROFILE: "Two profiles for `tokens`: one for prompts of any length, and one whose min, opt and max are a single token.",
        "": "Which line of your code made what the message names? Decoder(...).step and `seen` show the same error in the notebook.",
    }

    def write_given(self, folder: str | Path = ".") -> None:
        """Write ``recomputing.onnx``, the decoder from which the notebook starts."""
        from course_lib.labs.lab13_generation import network

        Path(folder, "recomputing.onnx").write_bytes(network.recomputing())

    def speed_tier(self, latencies: Mapping[str, np.ndarray]) -> Tier | None:
        """See `Lab.speed_tier`."""
        return tier(checks.race(latencies))[0]


lab = Generation()
