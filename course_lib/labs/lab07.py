"""Lab 07, profiling: a pipeline that is right and slow, and a timeline that tells why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from course_lib.benchmark import Comparison
from course_lib.errors import CourseError, EngineError
from course_lib.labs import lab07_causes, lab07_pace
from course_lib.labs import lab07_service as services
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task
from course_lib.labs.criteria import summary
from course_lib.labs.handed_in import read_text
from course_lib.labs.lab07_answers import CLOSE, SIZES, TOLERANCE, check, largest_error
from course_lib.labs.lab07_child import FILE
from course_lib.labs.lab07_pace import FLOOR
from course_lib.labs.lab07_stream import fresh_stream
from course_lib.percent import in_percent

_POINTS = {3: 1.0, 2: 0.6, 1: 0.3, 0: 0.0}  # share of the points for throughput, by fixed causes
_MOST_BYTES = 64 << 10
RECORDINGS = 3  # of the given pipeline, at most, where evidence does not agree with the first


class Profiling(Lab):
    """Hand in `pipeline.py` and `causes.json`."""

    name = "lab07_profiling"
    title = "Lab 07: profiling"
    artefacts: ClassVar = {FILE: _MOST_BYTES, lab07_causes.FILE: lab07_causes.MAX_BYTES}
    tasks = (
        Task("causes", "Name the causes, with evidence", 3),
        Task("equal", "The same answers", 2),
        Task("throughput", "More scans a second", 5),
    )

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """All four causes fixed, in one thread; the evidence is recorded on this machine."""
        (folder / FILE).write_text(services.reference(), encoding="utf-8")
        lab07_causes.write(folder / lab07_causes.FILE, services.record(services.given(), ours=True))

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Record the given pipeline for the causes; then answer fresh streams, then race."""
        causes = (self._causes(folder / lab07_causes.FILE, bench),) if only in (None, "causes") else ()
        if only == "causes":
            return Examination(causes)
        found = self._pipeline(folder / FILE, bench, only)
        return Examination((*causes, *found.outcomes), None, found.comparison, found.figures)

    def _causes(self, file: Path, bench: Bench) -> Outcome:
        try:
            causes = lab07_causes.read(file)
        except CourseError as error:
            return self.outcome(
                "causes", "none", str(error), "Task 1 writes it: name suspects, ranges and shares as its text says."
            )
        measured = [lab07_causes.shares(services.record(services.given(), bench, ours=True))]
        judged = lab07_causes.judge(causes, *measured)
        while judged.evidence and len(measured) < RECORDINGS:  # load from elsewhere moves shares: look again before it counts
            measured.append(lab07_causes.shares(services.record(services.given(), bench, ours=True)))
            judged = lab07_causes.judge(causes, *measured)
        if not judged.wrong:
            return self.outcome("causes", "full", "All eight suspects are judged right, and the evidence holds.")
        tier = "partial" if judged.wrong <= 2 else "none"
        return self.outcome("causes", tier, judged.message(), judged.hint(), share=0.5)

    def _pipeline(self, file: Path, bench: Bench, only: str | None) -> Examination:
        try:
            source = read_text(file, _MOST_BYTES, "a pipeline takes no more than a page or two")
            equal, error = self._equal(source, bench)
        except EngineError as wrong:
            return Examination(self.nothing(str(wrong), _hint(str(wrong)), ("equal", "throughput")))
        figures = {"largest_error": min(error, 1e9)}
        if equal.tier == "none":
            nothing = self.nothing("Wrong answers have no throughput: get them right first.", equal.hint, ("throughput",))
            return Examination((equal, *nothing), figures=figures)
        try:
            comparison = lab07_pace.race(source, bench, floor_only=only == "equal")
        except EngineError as wrong:
            return Examination(self.nothing(str(wrong), _hint(str(wrong)), ("equal", "throughput")), figures=figures)
        if lab07_pace.above(comparison.latencies(), "partial") is not True:
            message = (
                f"No more than {FLOOR['partial']:g}x over the given pipeline, which is equal to itself: equality counts beyond."
            )
            equal = self.outcome("equal", "none", message, "Fix the cause with the largest share of the timeline first.")
        throughput = () if only == "equal" else (self._throughput(comparison),)
        return Examination((equal, *throughput), None, comparison, figures)

    def _equal(self, source: str, bench: Bench) -> tuple[Outcome, float]:
        """Fresh scans in streams of odd sizes, through the given pipeline and the hand-in."""
        rng, error = bench.rng(), 0.0
        with services.started(services.given(), bench, ours=True) as given, services.started(source, bench) as yours:
            for sizes in SIZES:
                stream = fresh_stream(sizes, rng)
                expected, found = (services.answers(service, stream) for service in (given, yours))
                check(expected, found)
                error = max(error, largest_error(expected, found))
        message = f"Logits of {sum(map(sum, SIZES))} fresh scans in requests of 1 to 64: at most {in_percent(error)} off."
        if error <= TOLERANCE:
            return self.outcome("equal", "full", message), error
        hint = "The same network on other pixels. Which step rounds, clips or scales otherwise than the given `normalise`?"
        assert error <= CLOSE
        return self.outcome("equal", "partial", f"{message} At most {100 * TOLERANCE:g} % is rounding.", hint, share=0.5), error

    def _throughput(self, comparison: Comparison) -> Outcome:
        latencies = comparison.latencies()
        fixed, sure = lab07_pace.fixes(latencies)
        tier = "full" if fixed == 3 else "inconclusive" if not sure else "partial" if fixed else "none"
        lefts = [left for left in (1, 2, 3) if lab07_pace.reached(latencies, left) is None][:1] or [1]
        criteria = lab07_pace.criteria(latencies, 1 if tier == "full" else lefts[0])
        message = summary(criteria, tier)
        if tier == "full":
            return replace(self.outcome("throughput", tier, message), criteria=tuple(criteria))
        message += f" This throughput is worth {fixed} of the three fixes that full points need."
        hint = "Record your own pipeline: which range is the longest now, and does any answer need what it does?"
        outcome = self.outcome("throughput", tier, message, hint, share=_POINTS[fixed])
        return replace(outcome, criteria=tuple(criteria))


def _hint(message: str) -> str:
    """Where to look, by what went wrong."""
    known = {
        "is missing": "Task 2 writes it: solve its cell and run it.",
        "NotImplementedError": "The pipeline is still empty: write its body in task 2 and run the cell, which writes pipeline.py.",
        "lies outside every profile": "The engine takes 1 to 32 images at a time: cut longer requests.",
        "another order": "Whatever runs at the same time, answers leave in the order of the requests.",
        "answers came back": "One answer for each request. Who waits for the last one when the stream ends?",
        "rows": "The last batch of a request is rarely full: what happens to its scans?",
        "reads ahead": "A stream has no end in service. Answer a request before you read the one after the next.",
        "no answer to": "A thread that dies takes no more requests, and the thread that waits for it never returns: hand its exception on.",
        "off by": "Compare your images with the given pipeline's, scan by scan, before any engine sees them.",
    }
    return next(
        (hint for words, hint in known.items() if words in message),
        "Run `record(source)` in the notebook: the same error appears there.",
    )


lab = Profiling()
