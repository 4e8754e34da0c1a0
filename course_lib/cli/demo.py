"""The whole loop in one call: the digits classifier from PyTorch to a measured engine, then lab 01 graded.

In the learner's bundle, which has no reference, the untouched lab is checked instead.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from course_lib import labs
from course_lib.benchmark import compare
from course_lib.cli.checked_folder import points_of
from course_lib.cli.drawn_layers import layers_page
from course_lib.engines import ModelSource, Plan, build, default_builder, default_runner
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.self_check import check
from course_lib.labs import Examiner
from course_lib.labs.framework.racing import logits
from course_lib.recipe import Profile, Recipe

WORK = "demo"
_LAB = labs.find("lab01")
_SECONDS = 20.0  # longest time of the comparison
_MODEL = ModelSource("course_lib.models:classifier", ("small",))
_BATCH = 4
_RECIPE = Recipe(profiles=(Profile(image=dict.fromkeys(("min", "opt", "max"), (_BATCH, 1, 32, 32))),))


def run(root: Path) -> dict[str, Any]:
    """Build, measure and grade, and write everything to the folder ``demo``.

    Raises:
        CourseError: a submission could not be graded.
    """
    from course_lib.models import classifier, export_onnx

    has_reference = (root / "solutions").is_dir()
    folder = root / WORK
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"The demo takes about {'3 minutes' if has_reference else 'a minute'} on two cores and downloads nothing.")
    print("1/2  the digits classifier: PyTorch to ONNX to an engine, accuracy and speed against PyTorch eager (about 40 s)")
    model = folder / "model.onnx"
    export_onnx(classifier("small"), model)
    plan = build(model, _RECIPE, backend=default_builder())
    layers = folder / "layers.html"
    layers.write_text(layers_page(plan.layers, plan.title), encoding="utf-8")
    accuracy, speed = _measured(build(model, _RECIPE, backend=default_runner()))
    print(f"     {plan.layers.summary()}")
    return {
        "backend": {"build": default_builder(), "run": default_runner()},
        "accuracy": accuracy,
        "speedup": speed,
        "ops": len(plan.layers.operators),
        "kernels": len(plan.layers.kernels),
        "layers": str(layers),
        "sandbox": sandbox.problem() or "bubblewrap",
        "submissions": _graded(root) if has_reference else _checked(root),
    }


def _measured(plan: Plan) -> tuple[dict[str, float], dict[str, float]]:
    """Share of held-out digits that PyTorch and the engine classify correctly, and the engine's speed over PyTorch eager."""
    from course_lib.models import digits

    examiner, held_out, rng = Examiner(), digits("test"), np.random.default_rng()
    with ExitStack() as stack:
        subjects = {
            "eager": stack.enter_context(examiner.baseline(_MODEL)),
            "engine": stack.enter_context(examiner.engine(plan)),
        }
        right = {
            name: float((logits(one, held_out.images, [_BATCH]).argmax(1) == held_out.labels).mean())
            for name, one in subjects.items()
        }

        def images() -> dict[str, np.ndarray]:
            begin = int(rng.integers(len(held_out.images) - _BATCH))
            return {"image": held_out.images[begin : begin + _BATCH]}

        speed = compare(subjects, images, baseline="eager", time_limit_s=_SECONDS).speedups["engine"]
    return right, {"median": speed.median, "low": speed.low, "high": speed.high}


def _graded(root: Path) -> list[dict[str, str]]:
    """The grades of the reference and of the untouched lab, which are the course's own files: a sandbox is not necessary."""
    print("2/2  nbgrader autogrades two submissions of lab 01: the reference solution and the unsolved lab (about 2 minutes)")
    problem = sandbox.problem()
    if problem:
        print(f"     no sandbox ({problem}): the two submissions are the course's own, so they are graded with --trusted")
    room, grades = Classroom(root, WORK, trusted=bool(problem)), []
    for student, folder in (("solution", "solutions"), ("untouched", "labs")):
        room.submit(student, _LAB, root / folder / _LAB.name)
        for name in _LAB.artifacts:  # what running the notebook in place may have left there
            (room.folder / "submitted" / student / _LAB.name / name).unlink(missing_ok=True)
        print(f"     the submission {student!r}: its notebook runs, then its files are examined")
        grades += room.grade(_LAB, [student])
    for grade in grades:
        if grade.error:
            raise CourseError(
                f"the submission {grade.student!r} could not be graded: {grade.error}; see {room.folder / 'nbgrader.log'}"
            )
    return [
        {"student": one.student, "points": f"{one.review.points}", "report": f"{one.report}", "feedback": f"{one.feedback}"}
        for one in grades
    ]


def _checked(root: Path) -> list[dict[str, str]]:
    print("2/2  the untouched lab 01 is checked as the grader checks it (about 10 s)")
    points = points_of(_LAB, check(_LAB, root / "labs" / _LAB.name))
    print("     no reference in this bundle: its grading is part of the instructor's demo")
    return [{"student": "untouched", "points": f"{points}"}]
