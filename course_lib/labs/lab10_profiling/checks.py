"""What is looked at in each task of lab 10: the named causes, the answers and the speed of a pipeline."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from course_lib.benchmark import compare, speedup
from course_lib.errors import EngineError
from course_lib.labs.framework import submission
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_most, speed_at_least
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.lab10_profiling import network
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.network import Stream, fresh_stream, usual_sizes
from course_lib.labs.lab10_profiling.sandboxed.pipeline import FILE

CAUSES = "causes.json"
MAX_BYTES = 64 << 10
Suspect = Literal["batch", "compression", "conversion", "engine", "lock", "logging", "pixels", "self-test"]
# Digests of each suspect with the range that holds what it costs and nothing else: finding that range is the task.
_EVIDENCE = (
    *("72b4062db2aabefd", "8b37abdbafbf64c9", "0466f148a7afba94", "3b60117084dbc4a6"),
    *("c00c00fa5e55f541", "63b68dfb82ec6dcf", "61c97b54ddd0765b", "eef582bd4402a938"),
)
MATTERS = 0.05  # share of the serving time from which on a suspect is guilty
MISJUDGED = 1  # suspects, for half of the points; the pipeline of another learner has two other causes or more
SAME_SHARE = 0.5  # how far a learner's share may differ from the grader's, which is of another processor, in parts of it
RECORDINGS = 3  # of the given pipeline, at most, where a judgment does not agree with the first
TOLERANCE = 0.1  # % of the largest logit; orders of float32 sums differ by 1e-4 %, another rounding of pixels by 1 %
CLOSE = 10.0  # % up to which it is the same network on images that were prepared in another way
SIZES = ((1,), (20,), (33, 5), (3, 32, 31, 64), (7, 1, 1, 40), (50,))  # streams whose requests do not divide by any batch
FASTER, HALF_AS_FAST = 8.0, 2.0  # over the given pipeline: 2.9 to 7.4 with one cause left, 9.3 to 20 without
REQUESTS = 3  # of a stream that is timed
FORM, ANOTHER_COUNT, OTHER_ROWS, ANOTHER_ORDER, FAR_OFF = "form", "another_count", "other_rows", "another_order", "far_off"

_INNOCENT, _MISSING = "innocent or negligible", "at least one that costs time is not named"
_LOOKS_BAD = "Code that looks bad is not always slow. What share of the serving time do all its ranges take together?"
_SUM = "Sum every range over the whole recording: many short bars can cost more than one long bar. Which result needs them?"
_INNERMOST = "Which innermost range holds this cause, and what is its share in `shares` for the given pipeline?"
_ROUNDS = (
    "The network is the same and its input differs. Which step rounds, clips or scales differently from the given `normalize`?"
)
_LONGEST = "Record your own pipeline: which range is the longest now, and do the answers need its work?"
Logits = Mapping[str, np.ndarray]  # of each request, by its number


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
        answers: Answers = submission.checked(Answers, submission.read_json(self.folder / CAUSES, MAX_BYTES), CAUSES, FORM)
        return answers.causes

    def started(self, *, ours: bool) -> AbstractContextManager[TimedWorker]:
        """A process with the learner's given pipeline, or with the one in `pipeline.py`."""
        given = network.given(submission.learner_in(self.folder / CAUSES))  # the answers are the same for every id
        source = given if ours else submission.read_text(self.folder / FILE, MAX_BYTES)
        return services.started(source, self.examiner, ours=ours)

    @step
    def mistakes(self) -> dict[str, str]:
        """What is wrong by suspect. Load from elsewhere moves shares, so a mistake counts only if several recordings show it."""
        causes, wrong = self.causes, dict.fromkeys(get_args(Suspect), "")
        for _ in range(RECORDINGS):
            self.examiner.begins("record: the given pipeline", 4)
            found = mistakes(causes, network.shares(services.record(network.given(self.learner), self.examiner, ours=True)))
            wrong = {suspect: problem for suspect, problem in found.items() if suspect in wrong}
            if not wrong:
                break
        return wrong

    @step
    def error(self) -> float:
        """The largest error on fresh scans in streams of odd sizes, in % of the largest logit."""
        rng = self.rng()
        self.examiner.begins("scans: new ones through both pipelines", 8)
        with self.started(ours=True) as given, self.started(ours=False) as yours:
            streams = (fresh_stream(sizes, rng) for sizes in SIZES)
            error = max(checked_error(given.infer(stream), yours.infer(stream)) for stream in streams)
        self.figures["largest_error"] = error / 100
        return error

    @step
    def latencies(self) -> Mapping[str, np.ndarray]:
        """The times of both pipelines on the same streams, interleaved."""
        rng, examiner = self.rng(), self.examiner
        as_exact = min(CLOSE, 3 * max(self.error, TOLERANCE))  # it must not be rougher while it is timed

        def fresh() -> Stream:
            return fresh_stream(usual_sizes(rng, REQUESTS), rng)

        def look(_: Stream) -> None:
            checked_error(given.answered, yours.answered, as_exact)

        def decided(latencies: Mapping[str, np.ndarray]) -> bool:
            return all(_faster(latencies, bound, ALL).met is not None for bound in (FASTER, HALF_AS_FAST))

        with self.started(ours=True) as service:
            given, yours = Timed(lambda: nullcontext(service), fresh), Timed(lambda: self.started(ours=False), fresh)
            self.comparison = examiner.measured(
                lambda: compare(
                    {"given": given, "yours": yours},
                    fresh,
                    baseline="given",
                    time_limit_s=examiner.measure_s,
                    warmup=1,
                    min_rounds=10,
                    settled=decided,
                    after_round=look,
                )
            )
        return self.comparison.latencies()


@dataclass
class Timed:
    """A pipeline with its last answers. A submission's starts again for each stream: none of its threads can slow down the given one."""

    start: Callable[[], AbstractContextManager[TimedWorker]]
    warmup: Callable[[], Stream]  # draws a stream that is not timed
    answered: Logits = field(default_factory=dict)

    def time_ms(self, feeds: Stream) -> float:
        """Time from the first byte sent to the last byte received."""
        with self.start() as service:
            service.infer(self.warmup())
            elapsed_ms, self.answered = service.timed(feeds)
        return elapsed_ms


def causes(work: PipelineWork) -> Iterator[Criterion]:
    """The suspects, against the grader's own recordings of the given pipeline."""
    wrong = work.mistakes
    lines = dict.fromkeys(text if text == _MISSING else f"{suspect}: {text}" for suspect, text in wrong.items())
    symptom = f"{len(wrong)} of {len(get_args(Suspect))} suspects are judged wrongly: {'; '.join(lines)}."
    hint = _LOOKS_BAD if _INNOCENT in wrong.values() else _SUM if _MISSING in lines else _INNERMOST
    for most, needed_for in ((MISJUDGED, HALF), (0, ALL)):
        yield replace(at_most("suspects that are judged wrongly", len(wrong), most, needed_for, hint=hint), symptom=symptom)


def equal(work: PipelineWork) -> Iterator[Criterion]:
    """The answers; and a pipeline that is not faster is not examined further, because the given one is equal to itself."""
    name, unit = "largest error of a logit", "% of the largest logit"
    for most, needed_for in ((CLOSE, HALF), (TOLERANCE, ALL)):
        yield at_most(name, work.error, most, needed_for, unit=unit, hint=_ROUNDS)
    yield _faster(work.latencies, HALF_AS_FAST, HALF)


def throughput(work: PipelineWork) -> Iterator[Criterion]:
    """The speed over the given pipeline."""
    for bound, needed_for in ((HALF_AS_FAST, HALF), (FASTER, ALL)):
        yield _faster(work.latencies, bound, needed_for)


def _faster(latencies: Mapping[str, np.ndarray], bound: float, needed_for: str) -> Criterion:
    ratio = speedup(latencies["given"], latencies["yours"], seed=0)
    return speed_at_least("throughput over the given pipeline", ratio, bound, needed_for, hint=_LONGEST)


def right_range(suspect: str, shares: Mapping[str, float]) -> str:
    """The range in `shares` that holds what the suspect costs and nothing else; "" if it was not recorded."""
    digests = {name: hashlib.sha256(f"{suspect} {name}".encode()).hexdigest()[:16] for name in shares}
    return next((name for name, digest in digests.items() if digest in _EVIDENCE), "")


def mistakes(causes: Mapping[Suspect, Evidence], shares: Mapping[str, float]) -> dict[str, str]:
    """What is wrong with the judgment of each suspect, by the `shares` of one recording of the given pipeline."""
    found = {}
    for suspect in get_args(Suspect):
        right, evidence = right_range(suspect, shares), causes.get(suspect)
        guilty = shares.get(right, 0.0) >= MATTERS
        if evidence is None:
            found[suspect] = _MISSING if guilty else ""
        elif not guilty:
            found[suspect] = _INNOCENT
        elif evidence.range not in shares:
            found[suspect] = f"there is no range {evidence.range!r} while the given pipeline serves"
        elif evidence.range != right:
            found[suspect] = f"{evidence.range!r} is not the range that holds this cause and nothing else"
        elif abs(evidence.share - shares[right]) > max(0.05, SAME_SHARE * shares[right]):
            found[suspect] = f"{right!r} does not take {100 * evidence.share:.0f} % of the serving time"
    return {suspect: problem for suspect, problem in found.items() if problem}


def checked_error(expected: Logits, found: Logits, most: float = CLOSE) -> float:
    """The largest error of a logit in % of the largest logit.

    Raises:
        EngineError: the answers have another number, other rows or another order, or an error of more than `most`.
    """
    if len(found) != len(expected):
        raise EngineError(f"{len(expected)} requests were sent and {len(found)} answers came back", code=ANOTHER_COUNT)
    for number, (want, have) in enumerate(zip(expected.values(), found.values(), strict=True), 1):
        if want.shape != have.shape:
            message = f"request {number} of {len(expected)} has {len(want)} scans, its answer {have.size // 10} rows"
            raise EngineError(message, code=OTHER_ROWS)
    want, have = (np.concatenate([*answers.values()]) for answers in (expected, found))
    largest = np.abs(want).max()
    error = 100 * float(np.abs(want - have).max() / largest)
    if not error <= most:
        nearest = np.abs(want[:, None] - have[None]).max(-1).min(1)
        permuted = bool((100 * nearest <= TOLERANCE * largest).all())
        order, code = (", but they are there in another order", ANOTHER_ORDER) if permuted else ("", FAR_OFF)
        raise EngineError(f"the logits of a fresh stream are off by {error:.2g} % of the largest{order}", code=code)
    return error
