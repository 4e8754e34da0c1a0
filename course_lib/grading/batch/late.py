"""Late penalties: points, or percent of the points reached, for every day that has begun.

`charge` is the one place where they are computed, from all points and dates of that moment: after a grading, and again before a report.
"""

from __future__ import annotations

import math
from typing import Any

from nbgrader.plugins import LateSubmissionPlugin
from traitlets import Enum, Float
from traitlets.config import Config

_DAY_S = 86_400


class LatePenalty(LateSubmissionPlugin):
    """Points that nbgrader subtracts from a late submission, default 0; set in ``nbgrader_config.py``: ``c.LatePenalty.per_day = 10``."""

    per_day = Float(0.0, min=0, help="subtracted for every day that has begun after the due date").tag(config=True)
    unit = Enum(("percent", "points"), "percent", help="percent of the points reached, or points").tag(config=True)
    most = Float(math.inf, min=0, help="never more than this, in the same unit").tag(config=True)

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float:
        """Points to subtract, at most the score. The gradebook has subtracted extensions from the lateness."""
        taken = min(self.per_day * math.ceil(total_seconds_late / _DAY_S), self.most)
        return min(taken if self.unit == "points" else score * taken / 100, score)


def charge(submission: Any, config: Config) -> None:
    """Compute a submission's penalties again from all points in the gradebook. Changes to its grades must be committed before."""
    plugin, late_s = LatePenalty(config=config), submission.total_seconds_late
    for notebook in submission.notebooks:
        penalty = plugin.late_submission_penalty(submission.student.id, notebook.score, late_s)
        notebook.late_submission_penalty = penalty if late_s else None
