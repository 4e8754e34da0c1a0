"""The process that runs a learner's calibrator: source text and histograms in, thresholds out.

It is started as text, by `isolation.text_command`, in a sandbox without the course. It has only numpy and Python's own modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, answered, run

METHODS = ("percentile", "entropy")


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """See `learner_code.answered`. A question has ``counts``, ``bin_width`` and, for percentile, ``percent``; its answer is a threshold."""
    return answered(request, dict.fromkeys(METHODS, _threshold))


def _threshold(function: Callable[..., Any], question: dict[str, Any]) -> float:
    return float(function(**question | {"counts": np.array(question["counts"], np.int64)}))


def main() -> None:
    """Answer one request."""
    run(answers, OnlyPackages("numpy"))
