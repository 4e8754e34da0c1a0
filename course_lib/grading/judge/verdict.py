"""The verdict on one submission: the judge writes it, the classroom signs and keeps it, and every report reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from course_lib import labs
from course_lib.benchmark import Comparison, Interval, Measurement, speedup
from course_lib.engines import LayerTable
from course_lib.errors import CourseError
from course_lib.grading.reports.layer_feedback import LayerFeedback
from course_lib.labs import Lab, Outcome
from course_lib.labs.framework.criteria import JUDGE_FAILED

_NO_VERDICT = "{path} is not a verdict: expected the JSON that `course grade` writes next to a report"


@dataclass(frozen=True)
class Verdict:
    """The judgment on one submission.

    Attributes:
        outcomes: one for each task; empty if the examiner itself failed.
        fault: why the examiner failed, empty otherwise. The submission is then not graded, rather than graded wrongly.
        provenance: versions, device, digests, seed and date, enough to repeat the examination. It also holds the machine's health
            during the measurement, and why processes of the submission ended.
        figures: single numbers by name, such as ``accuracy``.
        table: the layers of the engine that was built.
        layers: the differences from the reference's layers, if they could be determined.
    """

    lab: str
    outcomes: tuple[Outcome, ...]
    fault: str
    provenance: Mapping[str, Any] = field(repr=False)
    figures: Mapping[str, float] = field(default_factory=dict)
    comparison: Comparison | None = None
    table: LayerTable | None = field(default=None, repr=False)
    layers: LayerFeedback | None = None

    @property
    def score(self) -> float:
        """Points earned in the lab's tasks."""
        return sum(outcome.points for outcome in self.outcomes)

    @property
    def max_score(self) -> float:
        """Points of all tasks of the lab."""
        return sum(task.points for task in labs.find(self.lab).tasks)

    @property
    def is_complete(self) -> bool:
        """Whether every task has a judgment: neither the examiner nor the course's own code failed."""
        return not self.fault and not any(outcome.code == JUDGE_FAILED for outcome in self.outcomes)

    def points_changed(self) -> dict[str, tuple[float, float]]:
        """Points of the grading before this one and of this one, by the id of each task in which they differ."""
        before = (self.provenance.get("previous") or {}).get("points", {})
        now = {outcome.task.id: outcome.points for outcome in self.outcomes}
        return {task: (before[task], now[task]) for task in now if task in before and before[task] != now[task]}

    @property
    def of_reference(self) -> Interval | None:
        """Speed relative to the reference of the same session, None if none was raced."""
        latencies = self.comparison.latencies() if self.comparison else {}
        if not {"reference", "yours"} <= latencies.keys():
            return None
        return speedup(latencies["reference"], latencies["yours"], seed=0)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, with every single latency, so that the verdict can be computed again; `from_json` reads them back."""
        raced = self.comparison
        latencies = {name: [float(ms) for ms in series] for name, series in raced.latencies().items()} if raced else {}
        return {
            "lab": self.lab,
            "score": self.score,
            "max_score": self.max_score,
            "fault": self.fault,
            "tasks": [outcome.to_json() for outcome in self.outcomes],
            "figures": dict(self.figures),
            "comparison": {**raced.to_json(), "latencies_ms": latencies} if raced else None,
            "table": self.table.to_json() if self.table else None,
            "layers": asdict(self.layers) if self.layers else None,
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_json(cls, document: Any) -> Verdict:
        """The verdict in a document, signed or not.

        Raises:
            CourseError: the document is not a verdict.
        """
        try:
            raced, table, layers = document["comparison"], document["table"], document["layers"]
            return cls(
                lab=labs.find(document["lab"]).name,
                outcomes=tuple(map(Outcome.from_json, document["tasks"])),
                fault=document["fault"],
                provenance=document["provenance"],
                figures=document["figures"],
                comparison=_comparison(raced) if raced else None,
                table=LayerTable.from_json(table) if table else None,
                layers=TypeAdapter(LayerFeedback).validate_python(layers) if layers else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CourseError(f"not a verdict of this course ({type(error).__name__}: {error})") from None

    @classmethod
    def load(cls, path: Path) -> Verdict:
        """The verdict in a file.

        Raises:
            CourseError: it is not a verdict.
        """
        document = read_document(path)
        try:
            return cls.from_json(document)
        except CourseError:
            raise CourseError(_NO_VERDICT.format(path=path)) from None


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file that should hold a verdict.

    Raises:
        CourseError: the file is not a JSON object.
        OSError: the file cannot be read.
    """
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CourseError(_NO_VERDICT.format(path=path))
    return document


def verdict_file(classroom: Path, student: str, lab: Lab) -> Path:
    """Where a classroom keeps the verdict on a submission."""
    return classroom / "reports" / student / f"{lab.name}.json"


def _comparison(values: Mapping[str, Any]) -> Comparison:
    return Comparison(
        baseline=values["baseline"],
        measurements={name: Measurement(np.array(series)) for name, series in values["latencies_ms"].items()},
        speedups={name: Interval(**interval) for name, interval in values["speedup"].items()},
        seconds=values["seconds"],
        stopped=values["stopped"],
        clock=values.get("clock", ""),
    )
