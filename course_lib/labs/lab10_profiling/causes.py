"""The file `causes.json` of lab 10: the causes of the slow pipeline, each with a range of the timeline and its share as evidence."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.labs.framework.submission_files import read_json
from course_lib.labs.lab10_profiling import reference_causes as right
from course_lib.labs.lab10_profiling.sandboxed.pipeline import ENGINE_ROW, START
from course_lib.profiling import Timeline

FILE = "causes.json"
MAX_BYTES = 64 << 10
SUSPECTS = ("batch", "compression", "conversion", "engine", "lock", "logging", "pixels", "self-test")
MATTERS = 0.05  # share of the time from which on a guilty suspect has to be named; on a fast GPU `batch` may have less


@dataclass(frozen=True)
class Evidence:
    """The name of a range and its share of the recorded time, 0 to 1."""

    range: str
    share: float


def serving(timeline: Timeline) -> Timeline:
    """The recording without the pipeline's start, which happens once: from the first request to the last answer."""
    begin = max((event.end_us for event in timeline.events if event.row == START), default=0.0)
    events = tuple(event for event in timeline.events if event.start_us >= begin)
    if not events:
        return timeline
    return Timeline(events, (min(event.start_us for event in events), max(event.end_us for event in events)))


def shares(timeline: Timeline) -> dict[str, float]:
    """Share of the serving time for each range, without the start. A range inside another range counts in both."""
    served = serving(timeline)
    span_us = served.span_us or 1.0
    return {row.name: row.total_us / span_us for row in served.summary() if row.kind == "range"}


def write(path: Path, timeline: Timeline) -> None:
    """The right answer, with the evidence of a recording of the given pipeline."""
    measured = shares(timeline)
    causes = {
        suspect: {"range": right.RANGES[suspect], "share": round(measured[right.RANGES[suspect]], 3)}
        for suspect in right.GUILTY
    }
    path.write_text(json.dumps(causes, indent=2), encoding="utf-8")


def read(path: Path) -> dict[str, Evidence]:
    """Evidence by suspect, from `causes.json`.

    Raises:
        CourseError: the file is missing, too long, not JSON, or does not have this form.
    """
    found = read_json(path, MAX_BYTES, "one range and one share for each cause are enough")
    if not isinstance(found, dict):
        raise CourseError(
            f'{FILE} has to be an object such as {{"lock": {{"range": "lock", "share": 0.4}}}}, found {found!r:.60}'
        )
    return {_suspect(suspect): _evidence(suspect, one) for suspect, one in found.items()}


def _suspect(name: str) -> str:
    if name not in SUSPECTS:
        raise CourseError(f"{FILE} names {name[:40]!r}; the suspects are {', '.join(SUSPECTS)}")
    return name


def _evidence(suspect: str, found: object) -> Evidence:
    if isinstance(found, dict) and found.keys() == {"range", "share"}:
        name, share = found["range"], found["share"]
        number = isinstance(share, (int, float)) and not isinstance(share, bool)
        if isinstance(name, str) and number and 0 <= share <= 1 and math.isfinite(share):
            return Evidence(name, float(share))
    raise CourseError(f'{FILE} needs for {suspect!r} {{"range": its name, "share": a number from 0 to 1}}, found {found!r:.60}')


@dataclass(frozen=True)
class Judged:
    """The mistakes in some causes: guilty suspects that are not named, innocent suspects that are named, and invalid evidence."""

    missing: tuple[str, ...]
    innocent: tuple[str, ...]
    evidence: Mapping[str, str]

    @property
    def wrong(self) -> int:
        """Number of suspects that were judged wrongly."""
        return len(self.missing) + len(self.innocent) + len(self.evidence)

    def message(self) -> str:
        """What is wrong, one sentence each. Missing and innocent ranges are counted, not named."""
        parts = [f"{self.wrong} of {len(SUSPECTS)} suspects are judged wrongly."]
        if self.missing:
            parts.append("At least one that costs time is not named.")
        if self.innocent:
            parts.append(f"Innocent or negligible: {', '.join(self.innocent)}.")
        parts += [f"{suspect}: {problem}." for suspect, problem in self.evidence.items()]
        return " ".join(parts)

    def hint(self) -> str:
        """Where to look first."""
        if self.innocent:
            return "Code that looks bad is not always slow. What share of the serving time do all its ranges take together?"
        if self.missing:
            return (
                "Sum every range over the whole recording: many short bars can cost more than one long bar. "
                "Which result needs what they do?"
            )
        return "Name the innermost range that holds the cause, and its share of the serving time from `shares` for the given pipeline."


def judge(causes: Mapping[str, Evidence], *measured: Mapping[str, float]) -> Judged:
    """Compare the named causes with the `shares` of the examiner's own recordings of the given pipeline.

    Other load changes shares, so evidence must agree with one of several recordings, or be between them.
    """
    problems = {
        suspect: _problem(right.RANGES[suspect], one, measured) for suspect, one in causes.items() if suspect in right.GUILTY
    }
    return Judged(
        missing=tuple(
            s for s in right.GUILTY if s not in causes and min(one.get(right.RANGES[s], 0.0) for one in measured) >= MATTERS
        ),
        innocent=tuple(suspect for suspect in causes if suspect not in right.GUILTY),
        evidence={suspect: problem for suspect, problem in problems.items() if problem},
    )


def invalid_evidence(causes: Mapping[str, Evidence], *measured: Mapping[str, float]) -> dict[str, str]:
    """For each named suspect whose range or share is not that of a recording, the reason. It needs no reference."""
    problems = {suspect: _problem(None, one, measured) for suspect, one in causes.items()}
    return {suspect: problem for suspect, problem in problems.items() if problem}


def _problem(right_range: str | None, evidence: Evidence, measured: Sequence[Mapping[str, float]]) -> str:
    """Why this is not evidence; empty if it is. `right_range` is None if only the reference tells it."""
    name = evidence.range
    if name == ENGINE_ROW:
        return f"{name!r} is the device's row, not a range: name the range of the pipeline that holds this cause"
    if name not in measured[0]:
        return f"no range {name[:40]!r} in the given pipeline's timeline while it serves"
    if right_range not in (None, name):
        return f"{name!r} is not the range that holds this cause and nothing else"
    found = [one[name] for one in measured if name in one]
    low, high = min(found), max(found)
    if not low - max(0.05, 0.35 * low) <= evidence.share <= high + max(0.05, 0.35 * high):
        return f"{name!r} takes {100 * low:.0f} % of the serving time, not {100 * evidence.share:.0f} %"
    return ""
