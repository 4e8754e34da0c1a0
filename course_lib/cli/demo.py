"""The whole loop in one call: the real digits classifier from PyTorch to a graded engine."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib import labs
from course_lib.cli import demo_without_reference
from course_lib.cli.demo_without_reference import WORK
from course_lib.cli.drawn_layers import layers_page
from course_lib.engines import default_builder, default_runner
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.isolation import sandbox
from course_lib.labs import Examiner


def run(root: Path, say: Callable[[str], None] | None = print) -> dict[str, Any]:
    """Build, measure and grade, and write everything to the folder ``demo``.

    In the learner's bundle, `demo_without_reference` does the work. Here the submissions are the course's own files, so without a
    working sandbox they are graded without one, after a message.

    Raises:
        CourseError: a submission could not be graded.
    """
    if not (root / "solutions").is_dir():
        return demo_without_reference.run(root, say)
    tell = say or (lambda _: None)
    lab = labs.find("lab01")
    folder = root / WORK
    shutil.rmtree(folder, ignore_errors=True)
    model = folder / "model"
    model.mkdir(parents=True)

    tell("The demo takes about 3 minutes on two cores and downloads nothing.")
    tell("1/3  the digits classifier: PyTorch to ONNX to an engine, accuracy and speed against PyTorch eager (about 1 minute)")
    lab.write_reference(model)
    found = lab.examine(model, Examiner(begins=lambda name, about_s: tell(f"     {name} (about {about_s:.0f} s)")))
    plan, comparison = found.plan, found.comparison
    if plan is None or comparison is None:
        raise CourseError("the demo's own engine failed: " + "; ".join(outcome.message for outcome in found.outcomes))
    layers = folder / "layers.html"
    layers.write_text(layers_page(plan.layers, plan.title), encoding="utf-8")
    speed = comparison.speedups["yours"]
    tell(f"     {plan.layers.summary()}; {speed} over eager")

    problem = sandbox.problem()
    if problem:
        tell(f"     no sandbox ({problem}): the two submissions are the course's own, so they are graded with --trusted")
    tell("2/3  nbgrader autogrades two submissions of lab 01: the reference solution and the unsolved lab (about 2 minutes)")
    room = Classroom(root, WORK, trusted=bool(problem))
    room.submit("solution", lab, root / "solutions" / lab.name)
    room.submit("untouched", lab, root / "labs" / lab.name)
    for student in ("solution", "untouched"):  # what running the notebooks in place may have left there
        for name in lab.artifacts:
            (room.folder / "submitted" / student / lab.name / name).unlink(missing_ok=True)
    grades = []
    for student in ("solution", "untouched"):
        tell(f"     the submission {student!r}: its notebook runs, then its files are examined")
        grades += room.grade(lab, [student])
    if failed := [one for one in grades if one.error]:
        raise CourseError(
            f"the submission {failed[0].student!r} could not be graded: {failed[0].error}; see {room.folder / 'nbgrader.log'}"
        )
    tell("3/3  reports and feedback are written")
    return {
        "backend": {"build": default_builder(), "run": default_runner()},
        "accuracy": {"eager": found.figures["accuracy_eager"], "engine": found.figures["accuracy"]},
        "speedup": {"median": speed.median, "low": speed.low, "high": speed.high},
        "ops": len(plan.layers.operators),
        "kernels": len(plan.layers.kernels),
        "layers": str(layers),
        "sandbox": problem or "bubblewrap",
        "submissions": [one.to_json() for one in grades],
    }
