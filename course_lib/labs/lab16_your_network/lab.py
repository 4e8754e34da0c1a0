"""Lab 16, your network: about thirty lines of the learner's own PyTorch, with its engines and what was found in them."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import FIXED_DIMENSION, PRECISION, PROFILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab16_your_network import checks
from course_lib.labs.lab16_your_network.given import FINDINGS, NETWORK, PRECISIONS, RECIPE


class YourNetwork(Lab):
    """The submission is `network.py`, three ONNX files, `recipe.toml` and `findings.json`."""

    name = "lab16_your_network"
    title = "Lab 16: your network"
    work_class = checks.NetworkWork
    artifacts: ClassVar = {
        NETWORK: 64 << 10,
        **{f"{precision}.onnx": 64 << 20 for precision in PRECISIONS},
        RECIPE: 64 << 10,
        FINDINGS: 64 << 10,
    }
    tasks = (
        Task("export", "An engine that answers as your network", 2, checks.export),
        Task("precision", "FP16 and INT8", 2, checks.precision),
        Task("findings", "What you found", 6, checks.findings),
    )
    run_hint = "Run network.py and your engines in the notebook with the same shapes: the error appears there too."
    build_hints: ClassVar = {
        "": "Each size between min and max must work. Does forward() write a size as a number, such as view(8, -1)?",
        PRECISION: "`precision` states the graph's number types and does not change them. Which function of the course changes them?",
        **dict.fromkeys(
            (PROFILE, FIXED_DIMENSION), "Name each dimension that changes in signature(), and give it min, opt and max."
        ),
    }
    process_s: ClassVar = 240.0  # three builds and two processes with torch
    sandbox: ClassVar = {"address_bytes": 24 << 30}  # torch reserves more than it uses


lab = YourNetwork()
