"""What a record says about the machine whose engines it compares: `recording.about`, and both interpreters' versions."""

from __future__ import annotations

import os
import platform
from typing import Any

from benchmarks.recording import about
from course_lib.engines import Worker, split_target
from course_lib.engines.cuda.driver import capability
from course_lib.grading.isolation import sandbox


def machine(target: str) -> dict[str, Any]:
    """Device, driver, date, command, and the versions of this interpreter; those that only the target's has are its."""
    with Worker(split_target(target)[1]) as engine, Worker() as here:
        versions = {b["name"]: b["version"] for worker in (engine, here) for b in worker.backends() if b["version"]}
    return {
        **about(versions),
        "compute_capability": capability(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "target": target,
        "sandbox": sandbox.problem() or "bubblewrap",
    }
