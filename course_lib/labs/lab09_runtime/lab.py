"""Lab 09, the runtime by hand: a serving loop in the raw calls of TensorRT and CUDA, on the stand-in or on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from course_lib.errors import MISSING_FILE, EngineError
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab09_runtime import checks, given
from course_lib.labs.lab09_runtime.sandboxed.run_loop import FILE
from course_lib.standin.costs import Schedule

PLAN = "engine.plan"


class ByHand(Lab):
    """The submission is `serving_loop.py`."""

    name = "lab09_runtime"
    title = "Lab 09: the runtime by hand"
    work_class = checks.Loop
    artifacts: ClassVar = {FILE: checks.MAX_BYTES}
    tasks = (
        Task("answers", "The right answer to every request", 2, checks.answers),
        Task("order", "No data race between streams", 3, checks.order),
        Task("leaks", "All memory and objects given back", 2, checks.leaks),
        Task("overlap", "Copies that overlap runs", 3, checks.overlap),
    )
    process_s: ClassVar = 60.0  # the reference takes less than a second, and nothing is timed
    build_hints: ClassVar = {
        MISSING_FILE: "The cell of task 1 writes it. Run it, then check again.",
        checks.EMPTY: "Begin with one request, as in the cells above.",
        "": "Import the file in the notebook, and call `serve`: the same error appears there.",
    }

    def write_given(self, trt: Any, folder: str | Path = ".") -> None:
        """Write ``engine.plan``, as this module `tensorrt` builds it."""
        Path(folder, PLAN).write_bytes(given.serialized_engine(trt))

    def schedule(self, requests: Sequence[np.ndarray]) -> Schedule:
        """The times of a serving loop by the grader's cost model, for a figure in the notebook.

        Raises:
            EngineError: the file failed, or has a mistake in the order of its calls.
        """
        (served,) = checks.serve(Path(FILE), [given.Scene(given.PLAIN, tuple(requests))])
        if served.error:
            raise EngineError(f"{FILE}: {served.error}")
        if served.mistakes:
            raise EngineError("a loop with data races has no times: solve task 2 first")
        return served.schedule


lab = ByHand()
