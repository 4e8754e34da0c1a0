"""A class graded by several processes in sandboxes, beside plain nbgrader and the same engine grading, one after the other.

    python benchmarks/throughput.py [--submissions 50] [--workers 2] [--distinct] [--output FILE.json]

Every submission is lab 01's solved notebook, which builds its engine when it is run. All are equal, and a batch judges equal files once;
with ``--distinct`` each has a recipe of its own, so that every one is judged. *Plain* is `nbgrader autograde` with nbgrader's own
preprocessors and no sandbox, followed by the judge without a sandbox; *alone* is `course grade` with one process; *farm* is `course grade
--workers N`. Plain and alone are timed on fewer submissions; rates are submissions a second.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.recording import rows_of, save
from course_lib import labs
from course_lib.engines import available_backends
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.judge.judging import judge, provenance_of_machine
from course_lib.grading.nbgrader.bridge import configure

LAB = labs.find("lab01")
ROOT = Path(__file__).resolve().parent.parent
LARGEST = "max=(32, 1, 32, 32)"  # of the solution's profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--submissions", type=int, default=50, help="graded by the farm")
    parser.add_argument("--serial", type=int, default=8, help="graded one after the other, plain and alone")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--distinct", action="store_true", help="each engine accepts another largest batch")
    parser.add_argument("--output", type=Path, help="rows are added to those that it has")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, alone = Path(folder, "plain"), classroom(Path(folder, "alone"), options.serial, options.distinct)
        prepare(plain, options.serial, options.distinct)
        seconds: dict[str, float] = {}
        scores: dict[str, list[float]] = {"plain": []}
        plain_s: list[float] = []
        for index in range(options.serial):
            started = time.monotonic()
            scores["plain"].append(graded_plainly(plain, student(index)))
            plain_s.append(time.monotonic() - started)
        seconds["plain"] = sum(plain_s)
        started = time.monotonic()
        scores["alone"] = [grade.score for grade in alone.grade(LAB, alone.students(LAB))]
        seconds["alone"] = time.monotonic() - started
        print({name: round(taken, 1) for name, taken in seconds.items()}, scores, flush=True)
        farm = classroom(Path(folder, "farm"), options.submissions, options.distinct)
        started = time.monotonic()
        grades = farm.grade(LAB, farm.students(LAB), workers=options.workers)
        farm_s = time.monotonic() - started
        scores["farm"] = [grade.score for grade in grades]
    each = {name: taken / options.serial for name, taken in seconds.items()}
    found = {
        "distinct": options.distinct,
        "hand_ins": options.submissions,
        "serial_hand_ins": options.serial,
        "workers": options.workers,
        "plain_s_each": round(each["plain"], 2),
        "alone_s_each": round(each["alone"], 2),
        "overhead_s_each": round(each["alone"] - each["plain"], 2),
        "farm_s": round(farm_s, 1),
        "farm_s_each": round(farm_s / options.submissions, 2),
        "rate_over_plain": round(each["plain"] * options.submissions / farm_s, 2),
        "rate_over_the_fastest_and_slowest_plain": [round(f(plain_s) * options.submissions / farm_s, 2) for f in (min, max)],
        "equal_scores": len({score for values in scores.values() for score in values}) == 1,
        "errors": [grade.error for grade in grades if grade.error],
    }
    print(json.dumps(found, indent=1))
    if options.output:
        about = {
            "date": date.today().isoformat(),
            "device": provenance_of_machine(),
            "driver": "none: no GPU",
            "command": "python benchmarks/throughput.py",
        }
        versions = {one.name: one.version for one in available_backends() if one.version}
        others = [row for row in rows_of(options.output) if row["distinct"] != options.distinct]
        save(options.output, {**about, "versions": versions}, [*others, found])


def student(index: int) -> str:
    return f"s{index:02}"


def course(root: Path) -> Path:
    for name in ("solutions", "labs"):
        shutil.copytree(ROOT / name / LAB.name, root / name / LAB.name, ignore=shutil.ignore_patterns(*LAB.artifacts))
    return root


def with_another_batch(text: str, largest: str, index: int) -> str:
    """The text with the profile's largest batch, 32, that much larger: a batch of submissions judges equal files once.

    Raises:
        ValueError: `largest` is not in the text once.
    """
    if text.count(largest) != 1:
        raise ValueError(f"expected {largest!r} once in the solution, found it {text.count(largest)} times")
    return text.replace(largest, largest.replace("32", str(32 + index), 1))


def classroom(root: Path, submissions: int, distinct: bool) -> Classroom:
    room = Classroom(course(root))
    solved = root / "solutions" / LAB.name
    notebook = solved / f"{LAB.name}.ipynb"
    source = notebook.read_text(encoding="utf-8")
    for index in range(submissions):
        if distinct:
            notebook.write_text(with_another_batch(source, LARGEST, index), encoding="utf-8")
        room.submit(student(index), LAB, solved)
    notebook.write_text(source, encoding="utf-8")
    return room


def prepare(root: Path, submissions: int, distinct: bool) -> None:
    """The same class for nbgrader alone, the assignment registered."""
    classroom(root, submissions, distinct)
    done = nbgrader(root).generate_assignment(LAB.name)
    assert done["success"], done


def nbgrader(root: Path) -> Any:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.preprocessors import (
        AssignLatePenalties,
        CheckCellMetadata,
        Execute,
        IgnorePattern,
        LimitOutput,
        SaveAutoGrades,
    )
    from traitlets.config import Config

    config: Any = Config()
    configure(config, root=root)
    config.Autograde.autograde_preprocessors = [
        Execute,
        IgnorePattern,
        LimitOutput,
        SaveAutoGrades,
        AssignLatePenalties,
        CheckCellMetadata,
    ]
    config.ExecutePreprocessor.timeout = config.Execute.timeout = 240
    config.CourseDirectory.release_directory = "classroom/release"
    api = NbGraderAPI(CourseDirectory(config=config), config=config)
    api.log = logging.Logger("plain")
    return api


def graded_plainly(root: Path, name: str) -> float:
    """nbgrader's autograde, its feedback, and the judge on the files that the notebook left."""
    api = nbgrader(root)
    for done in (api.autograde(LAB.name, name), api.generate_feedback(LAB.name, name)):
        assert done["success"], done
    return judge(LAB, root / "classroom" / "autograded" / name / LAB.name, trusted=True).score


if __name__ == "__main__":
    main()
