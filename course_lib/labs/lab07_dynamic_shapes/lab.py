"""Lab 07, dynamic shapes: at most three profiles for bursty traffic, and the search that finds them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from course_lib.errors import FIXED_DIMENSION, MISSING_FILE, PRECISION, PROFILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab07_dynamic_shapes import checks
from course_lib.labs.lab07_dynamic_shapes.given import FILE


class DynamicShapes(Lab):
    """The submission is `recipe.toml`, `search.py` and `service.json`. All learners use the lab's network, each with another traffic."""

    name = "lab07_dynamic_shapes"
    title = "Lab 07: dynamic shapes"
    work_class = checks.ShapesWork
    artifacts: ClassVar = {checks.RECIPE: 64 << 10, checks.SEARCH: 64 << 10, FILE: 4 << 10}
    tasks = (
        Task("cover", "Every request accepted", 2, checks.cover),
        Task("account", "Shares and padding of any traffic", 2, checks.account),
        Task("search", "The cheapest profiles of any traffic", 4, checks.search),
        Task("cost", "Cost of a batch", 2, checks.cost),
    )
    timed_tasks = ("cost",)
    build_hints: ClassVar = {
        PRECISION: "Leave `precision` out of the recipe: fp32 is the default.",
        MISSING_FILE: "Task 1 writes recipe.toml, and task 2 search.py. Solve them, then run their cells again.",
        **dict.fromkeys(
            (PROFILE, FIXED_DIMENSION),
            "Each profile names both inputs, tokens (N, S, 32) and mask (N, S), with min, opt and max; N and S agree.",
        ),
        "": "Run the largest shape of each profile, or your function on yesterday's traffic, in the notebook: the error appears there too.",
    }
    source = checks.SOURCE

    def write_model(self, path: Path | str, *, opset: int | None = None) -> None:
        """The network that is served, as ONNX: ``tokens`` ``(N, S, 32)`` and ``mask`` ``(N, S)``."""
        from course_lib.labs.lab07_dynamic_shapes import network

        Path(path).write_bytes(network.exported(opset))


lab = DynamicShapes()
