"""Lab 10, profiling: a pipeline that is correct but slow, and a timeline that shows why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from course_lib._util.percent import in_percent
from course_lib.benchmark import Comparison
from course_lib.errors import MISSING_FILE, NO_ANSWER, OUTSIDE_PROFILES, CourseError, EngineError
from course_lib.labs.framework.criteria import HALF, Criterion, summary
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent
from course_lib.labs.framework.submission_files import read_text
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab10_profiling import causes as lab10_causes
from course_lib.labs.lab10_profiling import reference_causes
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.judge import throughput as lab10_pace
from course_lib.labs.lab10_profiling.judge.answers import (
    ANOTHER_COUNT,
    ANOTHER_ORDER,
    CLOSE,
    FAR_OFF,
    OTHER_ROWS,
    SIZES,
    TOLERANCE,
    check,
    largest_error,
)
from course_lib.labs.lab10_profiling.judge.throughput import FLOOR
from course_lib.labs.lab10_profiling.sandboxed.pipeline import EMPTY, FILE, READS_AHEAD
from course_lib.labs.lab10_profiling.stream import fresh_stream

_POINTS = {3: 1.0, 2: 0.6, 1: 0.3, 0: 0.0}  # share of the points for throughput, by fixed causes
_MOST_BYTES = 64 << 10
MISJUDGED = 2  # suspects, for half of the points
RECORDINGS = 3  # of the given pipeline, at most, where evidence does not agree with the first


class Profiling(Lab):
    """The submission is `pipeline.py` and `causes.json`."""

    name = "lab10_profiling"
    title = "Lab 10: profiling"
    artifacts: ClassVar = {FILE: _MOST_BYTES, lab10_causes.FILE: lab10_causes.MAX_BYTES}
    tasks = (
        Task("causes", "Name the causes, with evidence", 3),
        Task("equal", "The same answers", 2),
        Task("throughput", "More scans per second", 5),
    )
    timed_tasks = ("throughput",)

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """All four causes fixed, in one thread; the evidence is recorded on this machine."""
        (folder / FILE).write_text(services.reference(), encoding="utf-8")
        lab10_causes.write(folder / lab10_causes.FILE, services.record(services.given(), ours=True))

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Record the given pipeline for the causes, then compare the answers to fresh streams, then measure the speed."""
        causes = (self._causes(folder / lab10_causes.FILE, examiner),) if only in (None, "causes") else ()
        if only == "causes":
            return Examination(causes)
        found = self._pipeline(folder / FILE, examiner, only)
        return Examination((*causes, *found.outcomes), None, found.comparison, found.figures)

    def _causes(self, file: Path, examiner: Examiner) -> Outcome:
        try:
            causes = lab10_causes.read(file)
        except CourseError as error:
            return self.outcome(
                "causes",
                "none",
                error,
                "The cell of task 1 writes the file: name suspects, ranges and shares in the form that its text gives.",
            )
        measured: list[Mapping[str, float]] = []
        without = absent(reference_causes)
        for _ in range(RECORDINGS):  # load from elsewhere moves shares: look again before it counts
            measured.append(lab10_causes.shares(services.record(services.given(), examiner, ours=True)))
            if not (lab10_causes.invalid_evidence if without else _evidence)(causes, *measured):
                break
        if without:
            return self._causes_so_far(causes, *measured)
        judged = lab10_causes.judge(causes, *measured)
        if not judged.wrong:
            return self.outcome("causes", "full", "All eight suspects are judged correctly, and the evidence is confirmed.")
        tier = "partial" if judged.wrong <= MISJUDGED else "none"
        return self.outcome("causes", tier, judged.message(), judged.hint(), share=0.5)

    def _causes_so_far(self, causes: Mapping[str, lab10_causes.Evidence], *measured: Mapping[str, float]) -> Outcome:
        """Without the reference, which knows the guilty suspects: whether the evidence is what the given pipeline's recordings show."""
        problems = lab10_causes.invalid_evidence(causes, *measured)
        said = f"{len(causes)} of {len(lab10_causes.SUSPECTS)} suspects are named."
        said += "".join(f" {suspect}: {problem}." for suspect, problem in problems.items())
        name, wrong = "suspects whose range or share is not that of this pipeline", len(problems)
        limits = [
            Criterion(name, str(wrong), "0", not wrong),
            Criterion(name, str(wrong), f"at most {MISJUDGED}", wrong <= MISJUDGED, HALF),
        ]
        return self.so_far("causes", limits, "Take range and share from `shares` for the given pipeline.", context=said)

    def _pipeline(self, file: Path, examiner: Examiner, only: str | None) -> Examination:
        try:
            source = read_text(file, _MOST_BYTES, "a pipeline needs at most two pages")
            equal, error = self._equal(source, examiner)
        except EngineError as wrong:
            return Examination(self._failed(wrong))
        figures = {"largest_error": min(error, 1e9)}
        if equal.tier == "none":
            nothing = self.zero_outcomes("Throughput is not graded while answers are wrong.", equal.hint, ("throughput",))
            return Examination((equal, *nothing), figures=figures)
        try:
            as_exact = min(CLOSE, 3 * max(error, TOLERANCE))  # as where equality was examined: nobody is rougher while timed
            comparison = lab10_pace.race(source, examiner, floor_only=only == "equal", most_off=as_exact)
        except EngineError as wrong:
            return Examination(self._failed(wrong), figures=figures)
        if (faster := lab10_pace.above(comparison.latencies(), "partial")) is not True:
            found = "Not decided whether more than" if faster is None else "At most"
            message = (
                f"{found} {FLOOR['partial']:g}x over the given pipeline, in the median or in all streams together: "
                f"found {lab10_pace.over_given(comparison.latencies())}. "
                "Equality counts only above this speedup."
            )
            hint = "Fix the cause with the largest share of the timeline first."
            equal = self.outcome("equal", "inconclusive" if faster is None else "none", message, hint, share=0.0)
        throughput = () if only == "equal" else (self._throughput(comparison),)
        return Examination((equal, *throughput), None, comparison, figures)

    def _failed(self, wrong: EngineError) -> tuple[Outcome, ...]:
        return self.zero_outcomes(wrong, _HINTS.get(wrong.code, _OTHER_HINT), ("equal", "throughput"))

    def _equal(self, source: str, examiner: Examiner) -> tuple[Outcome, float]:
        """Fresh scans in streams of odd sizes, through the given pipeline and the submission."""
        rng, error = examiner.rng(), 0.0
        with services.started(services.given(), examiner, ours=True) as given, services.started(source, examiner) as yours:
            for sizes in SIZES:
                stream = fresh_stream(sizes, rng)
                expected, found = (services.answers(service, stream) for service in (given, yours))
                check(expected, found)
                error = max(error, largest_error(expected, found))
        message = f"Logits of {sum(map(sum, SIZES))} fresh scans in requests of 1 to 64: at most {in_percent(error)} off."
        if error <= TOLERANCE:
            return self.outcome("equal", "full", message), error
        hint = "The network is the same and its input differs. Which step rounds, clips or scales differently from the given `normalize`?"
        assert error <= CLOSE
        return self.outcome("equal", "partial", f"{message} At most {100 * TOLERANCE:g} % is rounding.", hint, share=0.5), error

    def _throughput(self, comparison: Comparison) -> Outcome:
        latencies = comparison.latencies()
        if absent(reference_causes):
            hint = "Fix the cause with the largest share of the timeline first."
            return self.so_far("throughput", lab10_pace.criteria_without_reference(latencies), hint)
        fixed, sure = lab10_pace.fixes(latencies)
        tier = "full" if fixed == 3 else "inconclusive" if not sure else "partial" if fixed else "none"
        lefts = [left for left in (1, 2, 3) if lab10_pace.reached(latencies, left) is None][:1] or [1]
        criteria = lab10_pace.criteria(latencies, 1 if tier == "full" else lefts[0])
        message = summary(criteria, tier)
        if tier == "full":
            return replace(self.outcome("throughput", tier, message), criteria=criteria)
        message = " ".join(part for part in (str(lab10_pace.own_noise(latencies)), message) if part)
        message += f" This throughput is worth {fixed} of the three fixes that full points need."
        hint = "Record your own pipeline: which range is the longest now, and do the answers need its work?"
        outcome = self.outcome("throughput", tier, message, hint, share=_POINTS[fixed])
        return replace(outcome, criteria=criteria)


def _evidence(causes: Mapping[str, lab10_causes.Evidence], *measured: Mapping[str, float]) -> Mapping[str, str]:
    return lab10_causes.judge(causes, *measured).evidence


_HINTS = {  # by the code of the error
    MISSING_FILE: "The cell of task 2 writes the file: solve it and run it.",
    EMPTY: "The pipeline is still empty: write its body in task 2 and run the cell, which writes pipeline.py.",
    OUTSIDE_PROFILES: "The engine takes 1 to 32 images at a time: split longer requests.",
    ANOTHER_ORDER: "Answers must leave in the order of the requests, also when several run at the same time.",
    ANOTHER_COUNT: "Each request needs one answer. Which code returns the last one when the stream ends?",
    OTHER_ROWS: "The last batch of a request is rarely full: what happens to its scans?",
    READS_AHEAD: "At most two requests may be open. Answer a request before you read the one after the next.",
    NO_ANSWER: "A thread that ends with an exception takes no more requests. Pass the exception on to the thread that waits.",
    FAR_OFF: "Compare your images with the given pipeline's, scan by scan, before any engine sees them.",
}
_OTHER_HINT = "Run `record(source)` in the notebook: the same error appears there."


lab = Profiling()
