"""Lab 12, serving: an engine server that survives bad disks, upgrades and bad requests, and Triton's configuration for it."""

from __future__ import annotations

from typing import ClassVar

from course_lib.errors import MISSING_FILE
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab12_serving import checks


class Serving(Lab):
    """The submission is `store.py`, `server.py` and `config.pbtxt`."""

    name = "lab12_serving"
    title = "Lab 12: serving"
    artifacts: ClassVar = dict.fromkeys(("store.py", "server.py", "config.pbtxt"), checks.MAX_BYTES)
    tasks = (
        Task("cache", "A cache that survives faults", 3, checks.cache),
        Task("requests", "Correct answers or errors", 2, checks.requests),
        Task("throughput", "Requests that share a run", 3, checks.throughput),
        Task("triton", "The same service in Triton", 2, checks.triton),
    )
    timed_tasks = ("throughput",)
    build_hints: ClassVar = {
        "": checks.NEVER_RIGHT,
        MISSING_FILE: "The cells below the tasks write these files: run them, then check again.",
    }


lab = Serving()
