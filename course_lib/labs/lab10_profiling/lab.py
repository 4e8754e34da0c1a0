"""Lab 10, profiling: a pipeline that is correct but slow, and a timeline that shows why."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, ClassVar, get_args

from course_lib.errors import MISSING_FILE, NO_ANSWER, OUTSIDE_PROFILES
from course_lib.labs.framework import submission
from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab10_profiling import checks, network
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.sandboxed.pipeline import EMPTY, FILE, READS_AHEAD


class Profiling(Lab):
    """The submission is `pipeline.py` and `causes.json`."""

    name = "lab10_profiling"
    title = "Lab 10: profiling"
    work_class = checks.PipelineWork
    artifacts: ClassVar = {FILE: checks.MAX_BYTES, checks.CAUSES: checks.MAX_BYTES}
    tasks = (
        Task("causes", "Name the causes, with evidence", 3, checks.causes),
        Task("equal", "The same answers", 2, checks.equal),
        Task("throughput", "More scans per second", 5, checks.throughput),
    )
    timed_tasks = ("throughput",)
    build_hints: ClassVar = {  # by the code of the error
        MISSING_FILE: "Which cell of the notebook writes this file? Run it, then check again.",
        checks.FORM: "The cell of task 1 writes the file: a range and a share for each suspect.",
        EMPTY: "The pipeline is still empty: write its body in task 2 and run the cell, which writes pipeline.py.",
        OUTSIDE_PROFILES: "The engine takes 1 to 32 images at a time: split longer requests.",
        checks.ANOTHER_ORDER: "Answers must leave in the order of the requests, also when several run at the same time.",
        checks.ANOTHER_COUNT: "Each request needs one answer. Which code returns the last one when the stream ends?",
        checks.OTHER_ROWS: "The last batch of a request is rarely full: what happens to its scans?",
        READS_AHEAD: "At most two requests may be open. Answer a request before you read the one after the next.",
        NO_ANSWER: "A thread that ends with an exception takes no more requests. Pass the exception on to the thread that waits.",
        checks.FAR_OFF: "Compare your images with the given pipeline's, scan by scan, before any engine sees them.",
        "": "Run `record(source)` in the notebook: the same error appears there.",
    }

    def write_reference(self, folder: Path, *, learner: str = "reference", **options: Any) -> None:
        """All four causes fixed, in one thread; the evidence is recorded on this machine."""
        from course_lib.labs.lab10_profiling import reference

        (folder / FILE).write_bytes(Path(inspect.getfile(reference.Pipeline)).read_bytes())  # fails where it is withheld
        measured = network.shares(services.record(network.given(learner), ours=True))
        ranges = {suspect: checks.right_range(suspect, measured) for suspect in get_args(checks.Suspect)}
        guilty = {suspect: name for suspect, name in ranges.items() if measured.get(name, 0.0) >= checks.MATTERS}
        causes = {suspect: {"range": name, "share": round(measured[name], 3)} for suspect, name in guilty.items()}
        submission.write(folder / checks.CAUSES, learner, causes=causes)


lab = Profiling()
