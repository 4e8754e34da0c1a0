"""A lab from outside the package, as docs/contributing.md shows it: the learner hands in a number."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from course_lib.labs import Examination, Examiner, Lab, Task
from course_lib.labs.framework.criteria import Tier
from course_lib.labs.framework.submission import missing


class Answer(Lab):
    """The submission is `answer.txt`."""

    name = "lab42_answer"
    title = "Lab 42: the answer"
    artifacts: ClassVar = {"answer.txt": 100}
    tasks = (Task("answer", "The right number", 2),)

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        (folder / "answer.txt").write_text("42")

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        file = folder / "answer.txt"
        if not file.is_file():
            return Examination(self.zero_outcomes(missing("answer.txt")))
        if file.read_text().strip() == "42":
            return Examination((self.outcome("answer", Tier.FULL, "answer.txt holds the right number."),))
        return Examination((self.outcome("answer", Tier.NONE, "answer.txt holds another number.", "Multiply 6 by 7."),))


lab = Answer()
