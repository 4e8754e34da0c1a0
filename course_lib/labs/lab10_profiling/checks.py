"""What is looked at in each task of lab 10: the named causes, the answers and the speed of a pipeline."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from course_lib.benchmark import compare, speedup
from course_lib.errors import CourseError, EngineError
from course_lib.labs.framework import submission
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_most, reaches_threshold, speed_at_least
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.framework.submission import read_text
from course_lib.labs.lab10_profiling import network
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.network import Stream, fresh_stream, usual_sizes
from course_lib.labs.lab10_profiling.sandboxed.pipeline import FILE

CAUSES = "causes.json"
MAX_BYTES = 64 << 10
Suspect = Literal["batch", "compression", "conversion", "engine", "lock", "logging", "pixels", "self-test"]
# The range that holds what a suspect costs and nothing else, as a digest: finding it is the task.
_RANGES: Mapping[str, str] = {
    "batch": "72b4062db2aabefd",
    "compression": "8b37abdbafbf64c9",
    "conversion": "0466f148a7afba94",
    "engine": "3b60117084dbc4a6",
    "lock": "c00c00fa5e55f541",
    "logging": "63b68dfb82ec6dcf",
    "pixels": "61c97b54ddd0765b",
    "self-test": "eef582bd4402a938",
}
MATTERS = 0.05  # share of the serving time from which on a suspect is guilty
MISJUDGED = 1  # suspects, for half of the points; the pipeline of another learner has two other causes or more
RECORDINGS = 3  # of the given pipeline, at most, where a judgment does not agree with the first
TOLERANCE = 0.1  # % of the largest logit; orders of float32 sums differ by 1e-4 %, another rounding of pixels by 1 %
CLOSE = 10.0  # % up to which it is the same network on images that were prepared in another way
SIZES = ((1,), (20,), (33, 5), (3, 32, 31, 64), (7, 1, 1, 40), (50,))  # streams whose requests do not divide by any batch
FASTER, HALF_AS_FAST = 8.0, 3.0  # over the given pipeline: 5 to 7.4 with one cause left, 10.8 to 20 without
REQUESTS = 3  # of a stream that is timed
FORM, ANOTHER_COUNT, OTHER_ROWS, ANOTHER_ORDER, FAR_OFF = "form", "another_count", "other_rows", "another_order", "far_off"

_LOOKS_BAD = "Code that looks bad is not always slow. What share of the serving time do all its ranges take together?"
_SUM = "Sum every range over the whole recording: many short bars can cost more than one long bar. Which result needs them?"
_INNERMOST = "Which innermost range holds this cause, and what is its share in `shares` for the given pipeline?"
_ROUNDS = (
    "The network is the same and its input differs. Which step rounds, clips or scales differently from the given `normalize`?"
)
_LONGEST = "Record your own pipeline: which range is the longest now, and do the answers need its work?"


class Evidence(BaseModel):
    """The name of a range and its share of the serving time, 0 to 1."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    range: str = Field(max_length=60)
    share: float = Field(ge=0, le=1)


class Answers(BaseModel):
    """The content of `causes.json`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    learner: str = ""
    causes: dict[Suspect, Evidence]


class PipelineWork(Work):
    """The examination of one pipeline and its causes."""

    learner_file = CAUSES

    @step
    def causes(self) -> dict[Suspect, Evidence]:
        """The causes in `causes.json`."""
        return read_causes(self.folder / CAUSES)

    @property
    def given(self) -> str:
        """The text of the learner's given pipeline."""
        return network.given(self.learner)

    @step
    def misjudged(self) -> Misjudged:
        """What is wrong with the named causes. Load from elsewhere moves shares: the pipeline is recorded again before a mistake counts."""
        causes, measured = self.causes, list[Mapping[str, float]]()
        for _ in range(RECORDINGS):
            self.examiner.begins("recording the given pipeline", 4)
            measured.append(services.shares(services.record(self.given, self.examiner, ours=True)))
            if not (found := misjudged(causes, measured)).count:
                break
        return found

    @step
    def source(self) -> str:
        """The text of `pipeline.py`."""
        return read_text(self.folder / FILE, MAX_BYTES, "a pipeline needs at most two pages")

    @step
    def error(self) -> float:
        """The largest error on fresh scans in streams of odd sizes, in % of the largest logit.

        Raises:
            EngineError: the pipeline failed, or its answers are far from those of the given one.
        """
        rng, error, source = self.rng(), 0.0, self.source
        self.examiner.begins("fresh scans through both pipelines", 8)
        with (
            services.started(self.given, self.examiner, ours=True) as given,
            services.started(source, self.examiner) as yours,
        ):
            for sizes in SIZES:
                stream = fresh_stream(sizes, rng)
                expected, found = (services.answers(service, stream) for service in (given, yours))
                error = max(error, checked_error(expected, found))
        self.figures["largest_error"] = error / 100
        return error

    @step
    def latencies(self) -> Mapping[str, np.ndarray]:
        """The times of both pipelines on the same streams, interleaved."""
        rng, examiner = self.rng(), self.examiner
        as_exact = min(CLOSE, 3 * max(self.error, TOLERANCE))  # it must not be rougher while it is timed

        def fresh() -> Stream:
            return fresh_stream(usual_sizes(rng, REQUESTS), rng)

        def decided(latencies: Mapping[str, np.ndarray]) -> bool:
            ratio = speedup(latencies["given"], latencies["yours"], seed=0)
            return all(reaches_threshold(ratio, bound) is not None for bound in (FASTER, HALF_AS_FAST))

        with services.started(self.given, examiner, ours=True) as given:
            yours = Restarted(lambda: services.started(self.source, examiner), given, fresh, as_exact)
            self.comparison = examiner.measured(
                lambda: compare(
                    {"given": given, "yours": yours},
                    fresh,
                    baseline="given",
                    time_limit_s=examiner.measure_s,
                    warmup=1,
                    min_rounds=10,
                    settled=decided,
                )
            )
        return self.comparison.latencies()


def causes(work: PipelineWork) -> Iterator[Criterion]:
    """The suspects, against the grader's own recordings of the given pipeline."""
    if not work.learner and work.causes is not None:
        yield submission.known(work.learner, CAUSES)
        return
    found, name = work.misjudged, "suspects that are judged wrongly"
    symptom = f"{found.count} of {len(_RANGES)} suspects are judged wrongly: {'; '.join(found.lines)}."
    for most, needed_for in ((MISJUDGED, HALF), (0, ALL)):
        yield replace(at_most(name, found.count, most, needed_for, hint=found.hint), symptom=symptom)


def equal(work: PipelineWork) -> Iterator[Criterion]:
    """The answers; and a pipeline that is not faster is not examined further, because the given one is equal to itself."""
    name, unit = "largest error of a logit", "% of the largest logit"
    for most, needed_for in ((CLOSE, HALF), (TOLERANCE, ALL)):
        yield at_most(name, work.error, most, needed_for, unit=unit, hint=_ROUNDS)
    yield _faster(work, HALF_AS_FAST, HALF)


def throughput(work: PipelineWork) -> Iterator[Criterion]:
    """The speed over the given pipeline."""
    yield _faster(work, HALF_AS_FAST, HALF)
    yield _faster(work, FASTER, ALL)


def _faster(work: PipelineWork, bound: float, needed_for: str) -> Criterion:
    ratio = speedup(work.latencies["given"], work.latencies["yours"], seed=0)
    return speed_at_least("throughput over the given pipeline", ratio, bound, needed_for, hint=_LONGEST)


def read_causes(file: Path) -> dict[Suspect, Evidence]:
    """Evidence by suspect.

    Raises:
        CourseError: the file is missing, too long, not JSON, or has another form.
    """
    text = read_text(file, MAX_BYTES, "one range and one share for each cause are enough")
    try:
        return Answers.model_validate_json(text).causes
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = " ".join(str(part) for part in first["loc"] if part != "[key]")
        raise CourseError(f"{CAUSES}: {place or 'the whole file'}: {first['msg']}"[:300], code=FORM) from None


def holds_cause(name: str, suspect: str) -> bool:
    """Whether the range of this name holds what the suspect costs and nothing else."""
    return hashlib.sha256(f"{suspect} {name}".encode()).hexdigest().startswith(_RANGES[suspect])


@dataclass(frozen=True)
class Misjudged:
    """The mistakes in some causes: the number of suspects, a line for each kind, and where to look first."""

    count: int
    lines: tuple[str, ...] = ()
    hint: str = ""


def misjudged(causes: Mapping[Suspect, Evidence], measured: Sequence[Mapping[str, float]]) -> Misjudged:
    """Compare the named causes with the `shares` of recordings of the given pipeline.

    Other load changes shares, so evidence must agree with one of several recordings, or be between them.
    """
    guilty = {
        suspect: [any(share >= MATTERS and holds_cause(name, suspect) for name, share in one.items()) for one in measured]
        for suspect in get_args(Suspect)
    }
    missing = [suspect for suspect in guilty if suspect not in causes and all(guilty[suspect])]
    innocent = [suspect for suspect in causes if not any(guilty[suspect])]
    wrong = {suspect: _problem(suspect, one, measured) for suspect, one in causes.items() if suspect not in innocent}
    lines = [f"innocent or negligible: {', '.join(innocent)}"] if innocent else []
    lines += [f"{suspect}: {problem}" for suspect, problem in wrong.items() if problem]
    count = len(missing) + len(innocent) + sum(map(bool, wrong.values()))
    if missing:
        lines.append("at least one that costs time is not named")
    return Misjudged(count, tuple(lines), _LOOKS_BAD if innocent else _SUM if missing else _INNERMOST if count else "")


def _problem(suspect: str, evidence: Evidence, measured: Sequence[Mapping[str, float]]) -> str:
    """Why this is not evidence; empty if it is."""
    name = evidence.range
    if name not in measured[0]:
        return f"there is no range {name!r} while the given pipeline serves"
    if not holds_cause(name, suspect):
        return f"{name!r} is not the range that holds this cause and nothing else"
    found = [one[name] for one in measured if name in one]
    low, high = min(found), max(found)
    if not low - max(0.05, 0.35 * low) <= evidence.share <= high + max(0.05, 0.35 * high):
        return f"{name!r} does not take {100 * evidence.share:.0f} % of the serving time"
    return ""


def checked_error(expected: Sequence[np.ndarray], found: Sequence[np.ndarray], most: float = CLOSE) -> float:
    """The largest error of a logit in % of the largest logit.

    Args:
        most: the largest error that is taken.

    Raises:
        EngineError: the answers have another number, other rows or another order, or are further off.
    """
    if len(found) != len(expected):
        raise EngineError(f"{len(expected)} requests were sent and {len(found)} answers came back", code=ANOTHER_COUNT)
    for index, (want, have) in enumerate(zip(expected, found, strict=True)):
        if len(want) != len(have):
            message = f"request {index + 1} of {len(expected)} has {len(want)} scans, its answer {len(have)} rows"
            raise EngineError(message, code=OTHER_ROWS)
    want, have = np.concatenate(expected), np.concatenate(found)
    largest = np.abs(want).max()
    error = 100 * float(np.abs(want - have).max() / largest)
    if not error <= most:
        nearest = np.abs(want[:, None] - have[None]).max(-1).min(1)
        permuted = bool((100 * nearest <= TOLERANCE * largest).all())
        order, code = (", but they are there in another order", ANOTHER_ORDER) if permuted else ("", FAR_OFF)
        raise EngineError(f"the logits of a fresh stream are off by {error:.2g} % of the largest{order}", code=code)
    return error


@dataclass(frozen=True)
class Restarted:
    """The submission, started again for each stream, so that none of its threads can slow down the given pipeline.

    Attributes:
        fresh: draws a stream.
        most: the largest error of an answer, as in `checked_error`.
    """

    start: Callable[[], AbstractContextManager[TimedWorker]]
    truth: TimedWorker
    fresh: Callable[[], Stream]
    most: float = CLOSE

    def time_ms(self, feeds: Stream) -> float:
        """Time from the first byte sent to the last byte received, after one warm-up stream.

        Raises:
            EngineError: the pipeline failed, or its answers differ from the given pipeline's.
        """
        streams = [self.fresh(), feeds]
        expected = [services.answers(self.truth, stream) for stream in streams]
        with self.start() as service:
            found = [services.answers(service, streams[0])]
            started = time.perf_counter()
            found.append(services.answers(service, feeds))
            elapsed_ms = 1e3 * (time.perf_counter() - started)
        for want, have in zip(expected, found, strict=True):
            checked_error(want, have, self.most)
        return elapsed_ms
