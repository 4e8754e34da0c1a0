"""Checking, grading and what follows from grades: `course check`, `grade`, `report`, `verify`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course_lib.cli.commands.options import AsJson, LabName, course_root, instructors_root, show
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.labs import Lab

_START_S = 5.0  # until the first step of a lab, on two cores


def check(
    lab: LabName,
    folder: Annotated[Path | None, typer.Argument(help="folder of the submission; default: this one, or the lab's own")] = None,
    task: Annotated[str | None, typer.Option(help="check only this task, such as speed; default: all tasks of the lab")] = None,
    seed_of: Annotated[Path | None, typer.Option(help="a verdict: examine on its data and not on fresh data")] = None,
    as_json: AsJson = False,
) -> None:
    """Check your own submission as the grader does, with hints.

    Each task shows your numbers, and its requirements where points are missing. The status is 1 if points are missing. The first
    failure of a task shows symptoms. Check again to see what was expected, too. Your code runs in the sandbox, if one works on this
    machine. With --task, the points are those of one task and not of the lab.
    """
    from course_lib import labs
    from course_lib.cli import console
    from course_lib.cli.checked_folder import nothing_submitted, points_of, submission_folder
    from course_lib.cli.steps import step_progress
    from course_lib.grading.isolation import sandbox
    from course_lib.grading.judge.self_check import check as examine

    chosen = labs.find(lab)
    if task is not None:
        chosen.task(task)
    seed = _seed(chosen, seed_of)[0] if seed_of else None
    where = submission_folder(chosen, folder, course_root() if folder is None else Path())
    problem = sandbox.problem()
    examined = nothing_submitted(chosen, where, task, given=folder is not None)
    if examined is None:
        if folder is None and where != Path.cwd() and not as_json:
            console.complain(f"the current folder has no file of the lab, so {where} is checked")
        if problem and not as_json:
            console.complain(
                f"no sandbox ({problem}): what {where} contains runs with your permissions. Check only files of your own"
            )
        with step_progress(shown=not as_json) as begins:
            begins(f"start: {chosen.title}", _START_S)
            examined = examine(chosen, where, only=task, seed=seed, begins=begins)
    if seed_of is None:
        examined = replace(examined, outcomes=tuple(chosen.for_learner(outcome, where) for outcome in examined.outcomes))
    points = points_of(chosen, examined)
    known = {
        "lab": chosen.name,
        "score": points.earned,
        "max_score": examined.max_points,
        "open": examined.open_points,
        "written": points.maximum - examined.max_points,
        "sandbox": problem or "bubblewrap",
    }
    if task is not None:
        known["only"] = task
    if not show(as_json, {**known, "tasks": [outcome.to_json() for outcome in examined.outcomes]}):
        console.outcomes(chosen, examined, points)
    if points.lost > 0:
        raise typer.Exit(1)


def _seed(lab: Lab, file: Path) -> tuple[int, str]:
    """The seed of a verdict's data, and the student whom it is about, "" if it does not say.

    Raises:
        CourseError: the file is not a verdict on this lab, or has no seed.
    """
    from course_lib.grading.judge.verdict import Verdict, read_document

    document = read_document(file)
    verdict = Verdict.from_json(document)
    seed = verdict.provenance.get("seed")
    if verdict.lab != lab.name:
        raise CourseError(f"{file} is a verdict on {verdict.lab}, expected one on {lab.name}")
    if not isinstance(seed, int):
        raise CourseError(f"{file} has no seed: expected the JSON next to a report, CLASSROOM/reports/STUDENT/{lab.name}.json")
    return seed, str(document.get("student", ""))


def grade(
    lab: LabName,
    student: Annotated[str | None, typer.Option(help="one student; default: every student with a submission")] = None,
    only_new: Annotated[
        bool, typer.Option("--new", help="only submissions that were not judged yet, or changed since")
    ] = False,
    seed_of: Annotated[
        Path | None, typer.Option(help="a verdict: grade its student again, on its data and not on fresh data")
    ] = None,
    classroom: Annotated[str, typer.Option(help="folder of submissions and grades")] = "classroom",
    builder: Annotated[str | None, typer.Option(help="backend that proves layers and profiles")] = None,
    runner: Annotated[str | None, typer.Option(help="backend that runs and is measured")] = None,
    trusted: Annotated[bool, typer.Option("--trusted", help="without the sandbox; only for files of your own")] = False,
    no_notebooks: Annotated[
        bool, typer.Option("--no-notebooks", help="judge the submitted files without running notebooks")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="processes on this machine; with GPUs, each gets one in turn")] = 1,
    scheduler: Annotated[
        str | None, typer.Option(help="address of a Dask scheduler whose workers grade instead, such as tcp://10.0.0.1:8786")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Grade the submissions of a lab, and write reports and feedback.

    Submissions are the folders CLASSROOM/submitted/STUDENT/LAB. After an interruption, the same command continues. The status is 1 if
    something was not graded as submitted, or if the examiner failed.
    """
    from course_lib import labs
    from course_lib.cli import console
    from course_lib.cli.batch_progress import BatchProgress

    chosen = labs.find(lab)  # before nbgrader is imported, so that a wrong name is said at once
    from course_lib.grading.batch.classroom import Classroom
    from course_lib.grading.batch.intake import id_problem

    if workers > 1 and scheduler:
        raise typer.BadParameter("--workers starts processes here, --scheduler names those of a cluster: give one of the two")
    root = instructors_root("grading")
    examiner: dict[str, object] = {key: value for key, value in (("builder", builder), ("runner", runner)) if value}
    if seed_of:
        examiner["seed"], owner = _seed(chosen, seed_of)
        student = student or owner
        if not student:
            raise CourseError(f"{seed_of} does not name a student: give one with --student")
    room = Classroom(root, classroom, trusted, examiner, {"run": False} if no_notebooks else {})
    intake = room.intake(chosen)
    students = [name for name in intake.students if student in (None, name)]
    submitted = len(students)
    if only_new:
        students = room.new(chosen, students)
    rejected = [] if student else intake.rejected
    if not submitted and not rejected:
        why = id_problem(student) if student else ""
        expected = room.folder / "submitted" / (student if student and not why else "STUDENT") / chosen.name
        raise CourseError(why or f"nothing was submitted: expected {expected}")
    if trusted and students and not as_json:
        console.complain(f"no sandbox (--trusted): {len(students)} notebooks and all submitted files run with your permissions")
    with BatchProgress(chosen.title, len(students), shown=not as_json or sys.stderr.isatty()) as progress:
        grades = room.grade(chosen, students, workers=workers, scheduler=scheduler, ended=progress.ended) if students else []
    known = {"lab": chosen.name, "grades": [one.to_json() for one in grades], "rejected": [one.to_json() for one in rejected]}
    if not show(as_json, known):
        if only_new:
            print(f"{len(students)} of {submitted} submissions are new, the others were judged and have not changed")
        console.grades(chosen, grades, rejected)
    if rejected or any(one.failed for one in grades):
        raise typer.Exit(1)


def report(
    lab: LabName,
    classroom: Annotated[str, typer.Option(help="folder of submissions and grades")] = "classroom",
    csv: Annotated[Path | None, typer.Option(help="also write the final points to this file")] = None,
    form: Annotated[str, typer.Option("--format", help="of the CSV file: nbgrader, moodle or canvas")] = "nbgrader",
    leaderboard: Annotated[
        bool, typer.Option("--leaderboard", help="also write a page with ranks, for the whole class")
    ] = False,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="the leaderboard with pseudonyms")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the page of a class: points, hard tasks, reviews, copies."""
    from course_lib import labs
    from course_lib.cli import console
    from course_lib.grading.batch.classroom import Classroom
    from course_lib.grading.reports.class_files import write

    made = write(labs.find(lab), Classroom(course_root(), classroom), csv, form, leaderboard=leaderboard, anonymous=anonymous)
    if not show(as_json, made.to_json()):
        console.class_report(made)


def verify(
    verdict: Annotated[Path, typer.Argument(help="the JSON next to a report: CLASSROOM/reports/STUDENT/LAB.json")],
    classroom: Annotated[
        Path | None, typer.Option(help="classroom whose key must have signed it; default: the one that contains the file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify that a verdict is as the grader signed it.

    It must also follow from the latencies that it holds. The status is 1 if it does not, or if there is no key.
    """
    from course_lib.grading.integrity import signature
    from course_lib.grading.judge import recompute
    from course_lib.grading.judge.verdict import read_document

    document = read_document(verdict)
    room = classroom or signature.classroom_of(verdict)
    key = signature.public_key(signature.signing_key(room)) if room and (room / signature.KEY_FILE).is_file() else None
    found = recompute.contradictions(document, key)
    if room and not found:
        found += recompute.replaced(document, room)
    if key is None:
        where = room / signature.KEY_FILE if room else "a classroom"
        found.append(
            f"no key was compared, so anyone may have signed it: {where} is missing, name the classroom with --classroom"
        )
    whose = "" if found else recompute.owner(document)
    told = {
        "verdict": str(verdict),
        "classroom": str(room) if room else None,
        "key": key,
        "owner": whose,
        "contradictions": found,
    }
    if not show(as_json, told):
        print("\n".join(found) or f"{verdict}: {whose}: signed by this classroom, and follows from its record (key: {room})")
    if found:
        raise typer.Exit(1)
