"""The examination of a learner's calibrator: it runs in its own process on fresh histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework import learner_answers
from course_lib.labs.framework.learner_answers import Unwritten
from course_lib.labs.lab05_calibration.judge.entropy import broken_rule
from course_lib.labs.lab05_calibration.judge.histograms import Question
from course_lib.labs.lab05_calibration.sandboxed import calibrate
from course_lib.labs.lab05_calibration.sandboxed.calibrate import METHODS

TIME_LIMIT_S = 30.0
_MAX_ANSWER = 64 << 10
_ENTROPY_HINT = (
    "Compare with `course_lib.precision.divergence` for each candidate, and check the rules of task 1: the candidates, the "
    "first bin, the groups, what is in Q, the count 0.0001 for a bin that Q leaves empty, and equal candidates."
)


@dataclass(frozen=True)
class Answers:
    """The answers of one function of a calibrator.

    Attributes:
        method: ``"percentile"`` or ``"entropy"``.
        questions: its questions.
        found: a threshold for each question, or the line of an error.
    """

    method: str
    questions: Sequence[Question]
    found: Sequence[float | str]

    @property
    def wrong(self) -> list[tuple[Question, float | str]]:
        """The questions with a wrong answer, and that answer."""
        return [pair for pair in zip(self.questions, self.found, strict=True) if not self._right(*pair)]

    @property
    def clean_are_right(self) -> bool:
        """Whether at least the clean histograms were answered right."""
        return not any(question.clean for question, _ in self.wrong)

    def _right(self, question: Question, found: float | str) -> bool:
        return not isinstance(found, str) and question.bins_off(self.method, found) == 0

    def message(self) -> str:
        """The number of correct answers, and the first wrong one."""
        said = f"{self.method}: {len(self.found) - len(self.wrong)} of {len(self.found)} new histograms are right."
        if not self.wrong:
            return said
        question, found = self.wrong[0]
        asked = f"percent {question.percent:g}, " if self.method == "percentile" else ""
        where = f"On {question.name!r} ({asked}{len(question.histogram.counts)} bins)"
        if isinstance(found, str):
            return f"{said} {where}: {found}"
        right = question.border(self.method) * question.histogram.bin_width
        off = question.bins_off(self.method, found)
        many = f"{abs(off):.0f} bins too {'high' if off > 0 else 'low'}" if math.isfinite(off) else "not a finite number"
        return f"{said} {where} expected {right:.4g}, found {found:.4g}: {many}."

    def hint(self) -> str:
        """Where to look, empty if all is right."""
        if not self.wrong:
            return ""
        errors = [found for _, found in self.wrong if isinstance(found, str)]
        if any(isinstance(line, Unwritten) for line in errors):
            return "The function is still empty: write its body in task 1 and run the cell, which writes calibrator.py."
        if errors:
            return "Call it in the notebook with the histogram of a tensor: the same error appears there, with all its lines."
        if self.method == "entropy":
            thresholds = [(question.histogram, float(found)) for question, found in self.wrong]
            rule = broken_rule([pair for pair in thresholds if math.isfinite(pair[1])])
            return (
                f"Your thresholds look as if your function did not follow this rule of task 1: {rule}"
                if rule
                else _ENTROPY_HINT
            )
        if all(_one_bin(question.bins_off(self.method, float(found))) for question, found in self.wrong):
            return "Off by one bin: bin k ends at (k + 1) * bin_width, and its values lie below that edge."
        if self.clean_are_right:
            return "Smooth histograms are right. Which line of your function fails with empty bins, with many zeros, or at 100 percent?"
        return "Count values, not bins: add up the counts from zero until `percent` percent of all values are inside."


def ask_calibrator(
    source: Path, questions: Sequence[Question], launcher: Launcher | None, *, max_bytes: int = 64 << 10
) -> list[Answers]:
    """Run ``calibrator.py`` on the questions: one `Answers` for each function that it defines.

    Raises:
        EngineError: the file is not text, fails as a whole, took too long, or its process sent an invalid answer.
    """
    return learner_answers.ask(
        calibrate,
        source,
        {method: [question.wire(method) for question in questions] for method in METHODS},
        lambda answer, _: _read(answer, questions),
        launcher=launcher,
        time_limit_s=TIME_LIMIT_S,
        max_bytes=max_bytes,
        max_answer=_MAX_ANSWER,
    )


def _read(answer: bytes, questions: Sequence[Question]) -> list[Answers]:
    """The answer of a process that may be hostile."""
    counts = dict.fromkeys(METHODS, len(questions))
    found = learner_answers.parsed(answer, counts, float, "calibrator.py did not return one number for each histogram")
    return [Answers(method, questions, found[method]) for method in METHODS if method in found]


def _one_bin(off: float) -> bool:
    return 1 - 1e-6 <= abs(off) <= 1 + 1e-6
