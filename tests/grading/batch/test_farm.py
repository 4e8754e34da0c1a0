"""A class graded by several processes: nothing lost, nothing twice, whatever ends in between."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.converters import GenerateFeedback

from course_lib.errors import CourseError
from course_lib.grading.batch import farm, submission
from course_lib.grading.batch.archive import Selection
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.batch.journal import Journal
from course_lib.grading.batch.submission import Job, Result
from course_lib.grading.isolation.sandbox import SandboxMissing
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.nbgrader import gradebook
from course_lib.labs import Examination, Outcome
from tests.grading.classes import real_verdict
from tests.grading.conftest import LAB, needs_sandbox, new_course, submit

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Classroom:
    room = Classroom(new_course(tmp_path_factory.mktemp("course")))
    room.folder.mkdir()
    return room


@pytest.fixture(scope="module")
def course(room) -> Selection:
    return room._registered(LAB)


def empty(room: Classroom, student: str) -> Path:
    """A submission that is graded fast: a notebook that does nothing, and no files."""
    folder = room.folder / "submitted" / student / LAB.name
    folder.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"print({student!r})")])
    nbformat.write(notebook, folder / f"{LAB.name}.ipynb")
    return folder


def job(room: Classroom, student: str, course: Selection) -> Job:
    files = Selection(room.folder / "submitted" / student / LAB.name, (f"{LAB.name}.ipynb", "."))
    return Job(LAB.name, student, files, course, files.look()[0], examiner=room.examiner)


@needs_sandbox
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "there is no notebook"),
        (b" " * (21 << 20), "more than 20 MiB"),
    ],
    ids=["absent", "too large"],
)
def test_a_notebook_that_cannot_be_read_costs_nothing_else(room, course, tmp_path, content, said):
    folder = room.folder / "submitted" / "odd" / LAB.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if content is not None:
        (folder / f"{LAB.name}.ipynb").write_bytes(content)
    (folder / "timestamp.txt").write_text("when I felt like it")
    result = submission.examine(job(room, "odd", course), tmp_path)
    assert said in result.error and "written answers stay open" in result.error
    assert "timestamp.txt holds no time" in result.error
    assert Verdict.from_json(result.verdict).score == 0
    assert "written" not in result.unanswered and not result.submitted, "a person decides about the answer"


def test_a_page_that_cannot_be_made_costs_no_points(room, course, monkeypatch):
    """As where nbconvert's templates are missing, or a notebook has what it cannot show."""

    def page(*_: Any) -> None:
        raise ValueError("no template:\n/usr/share/jupyter")

    monkeypatch.setattr(GenerateFeedback, "convert_single_notebook", page)
    monkeypatch.setattr("course_lib.grading.isolation.sandbox.require", lambda: None)
    monkeypatch.setattr(farm, "examine", lambda one, root: graded_by_hand(one, root))
    empty(room, "pageless")
    (grade,) = room.grade(LAB, ["pageless"])
    assert grade.error == "nbgrader could not show the notebook (ValueError: no template: /usr/share/jupyter): there is no page"
    assert grade.score == 1 and grade.report.is_file()
    assert "pageless" in (room.folder / "autograded" / "pageless" / LAB.name / f"{LAB.name}.ipynb").read_text()
    assert list((room.folder / "feedback" / "pageless").rglob("*.html")) == []


def graded_by_hand(one: Job, root: Path) -> Result:
    """A result with the notebook as it was submitted."""
    one.files.copy_to(root / "autograded" / one.student / one.lab)
    return replace(fake_result(one, points=1), files=Selection(root), error="")


def test_without_notebooks_the_submitted_files_are_judged(tmp_path, monkeypatch):
    """As they came: what a cell would print or write plays no part."""
    judged: list[bytes] = []

    def examine(lab, folder, examiner, only=None):
        judged.append((folder / "recipe.toml").read_bytes())
        return Examination(lab.zero_outcomes("wrong"))

    monkeypatch.setattr(type(LAB), "examine", examine)
    room = Classroom(new_course(tmp_path), trusted=True, limits={"run": False})
    folder = submit(room, "ada", first_cell="open('recipe.toml', 'w').write('later'); print('printed-by-a-cell')")
    (folder / "recipe.toml").write_bytes(b"submitted")
    for name in ("recipe.toml", "data.csv"):  # the instructor's own run, and a file of the lab that the learner did not hand in
        (room.root / "solutions" / LAB.name / name).write_bytes(b"of the course")
    (grade,) = room.grade(LAB, ["ada"])
    assert (grade.error, judged) == ("", [b"submitted"])
    assert (room.folder / f"autograded/ada/{LAB.name}/data.csv").read_bytes() == b"of the course"
    cells = json.loads((room.folder / f"autograded/ada/{LAB.name}/{LAB.name}.ipynb").read_text())["cells"]
    assert not any("printed-by-a-cell" in json.dumps(cell.get("outputs", [])) for cell in cells)


def test_what_is_recorded_is_not_graded_again(room, course, monkeypatch):
    """A batch that was interrupted after one record."""
    for student in ("a", "b", "c"):
        empty(room, student)
    graded: list[str] = []

    def examined(one: Job, root: Path) -> Result:
        graded.append(one.student)
        if graded == ["a", "b"]:
            raise KeyboardInterrupt
        return fake_result(one, points=len(graded))

    monkeypatch.setattr(farm, "examine", examined)
    monkeypatch.setattr(Classroom, "_write_feedback", lambda *_: "")
    monkeypatch.setattr("course_lib.grading.isolation.sandbox.require", lambda: None)
    with pytest.raises(KeyboardInterrupt):
        room.grade(LAB, ["a", "b", "c"])
    journal = Journal(room.folder / "jobs" / LAB.name)
    assert journal.recorded("a", job(room, "a", course).digest) == "a had no notebook"
    assert journal.recorded("b", job(room, "b", course).digest) is None
    graded.append("again")
    grades = room.grade(LAB, ["a", "b", "c"])
    assert [grade.score for grade in grades] == [1, 4, 5]
    assert [grade.error for grade in grades] == ["a had no notebook", "b had no notebook", "c had no notebook"], "all are kept"
    assert graded == ["a", "b", "again", "b", "c"]
    assert journal.recorded("a", job(room, "a", course).digest) is None

    graded.clear()
    assert [grade.score for grade in room.grade(LAB, ["a"])] == [1], "a finished batch is graded anew"
    assert graded == ["a"]


def fake_result(one: Job, points: float) -> Result:
    earned = [points, *[0.0] * (len(LAB.tasks) - 1)]
    outcomes = tuple(Outcome(task, "none", got, "made up") for task, got in zip(LAB.tasks, earned, strict=True))
    verdict = Verdict(LAB.name, outcomes, "", real_verdict().provenance).to_json()
    return Result(
        LAB.name, one.student, one.digest, Selection(Path("/nowhere")), verdict, error=f"{one.student} had no notebook"
    )


def test_a_submission_that_changed_is_graded_again(room, course):
    empty(room, "eve")
    first = job(room, "eve", course)
    journal = Journal(room.folder / "jobs" / "other")
    with journal.held():
        journal.mark(fake_result(first, 1))
        assert journal.recorded("eve", first.digest) == "eve had no notebook"
        (journal.folder / "eve.recorded").write_text(first.digest)
        assert journal.recorded("eve", first.digest) is None, "a mark of an older version, without the reason"
        (room.folder / "submitted" / "eve" / LAB.name / "more.txt").write_text("x")
        assert journal.recorded("eve", job(room, "eve", course).digest) is None
        with pytest.raises(CourseError, match="another process grades other"), journal.held():
            pass


def test_points_given_by_hand_stay(room, course):
    empty(room, "fay")
    verdict = Verdict.from_json(fake_result(job(room, "fay", course), points=2).verdict)
    gradebook.record(room.folder, LAB, verdict, "fay", unanswered=["written"])
    with gradebook.opened(room.folder) as opened:
        grade = opened.find_grade(LAB.tasks[1].id, LAB.name, LAB.name, "fay")
        grade.manual_score = 1.0
        opened.db.commit()
    gradebook.record(room.folder, LAB, verdict, "fay", unanswered=["written"])
    with gradebook.opened(room.folder) as opened:
        grades = {grade.name: grade for grade in opened.find_submission(LAB.name, "fay").notebooks[0].grades}
        assert grades[LAB.tasks[0].id].score == 2.0
        assert (grades[LAB.tasks[1].id].score, grades[LAB.tasks[1].id].needs_manual_grade) == (1.0, True)
        assert (grades["written"].auto_score, grades["written"].needs_manual_grade) == (0, False)


def test_what_is_lost_for_good_says_so_and_no_sandbox_ends_the_batch(room, course):
    empty(room, "gus")
    one = job(room, "gus", course)

    def ended(error: Exception) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_exception(error)
        return future

    lost = farm._result(ended(RuntimeError("gus")), one)  # in the place of Dask's KilledWorker
    assert lost.verdict == {} and "its worker ended 3 times (RuntimeError: gus)" in lost.error
    with pytest.raises(SandboxMissing, match="no sandbox"):
        farm._result(ended(SandboxMissing("no sandbox")), one)
    done: Future[Result] = Future()
    done.set_result(lost)
    assert farm._result(done, one) is lost


def test_what_fails_on_one_submission_does_not_end_the_batch(room, course, monkeypatch):
    empty(room, "hal")
    one = job(room, "hal", course)

    def fails(error: Exception) -> Any:
        def examine(_: Job, root: Path) -> Result:
            raise error

        return examine

    monkeypatch.setattr(farm, "examine", fails(RecursionError("deep\ndown")))
    (result,) = farm.graded([one])
    assert result.verdict == {} and result.error == "the grader failed (RecursionError: deep down)"
    monkeypatch.setattr(farm, "examine", fails(SandboxMissing("no sandbox")))
    with pytest.raises(SandboxMissing):
        list(farm.graded([one]))


def test_one_process_packs_no_archive(room, course, monkeypatch):
    empty(room, "ida")
    one = job(room, "ida", course)
    made = fake_result(one, points=1)
    monkeypatch.setattr(Selection, "packed", property(lambda _: pytest.fail("packed")))

    def examined(given: Job, root: Path) -> Result:
        given.files.copy_to(root / "there")
        return replace(made, files=Selection(root))

    monkeypatch.setattr(farm, "examine", examined)
    for result in farm.graded([one]):
        assert isinstance(result.files, Selection) and (result.files.folder / "there" / f"{LAB.name}.ipynb").is_file()
    assert not result.files.folder.exists()


def test_no_scheduler_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(farm, "_CONNECT_S", 1)
    with pytest.raises(CourseError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        list(farm.graded([], scheduler="tcp://127.0.0.1:9"))
    with pytest.raises(CourseError, match="no Dask scheduler answers at nonsense"):
        list(farm.graded([], scheduler="nonsense://x"))


def test_each_process_has_a_gpu(monkeypatch):
    monkeypatch.setattr(farm.driver, "uuids", lambda: ("GPU-a", "GPU-b"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert farm.gpus() == ["GPU-a", "GPU-b"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    assert farm.gpus() == ["3", "GPU-5"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert farm.gpus() == []


def test_a_process_killed_before_it_has_started_is_one_line(monkeypatch):
    import distributed

    def fails(**_):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(distributed, "SpecCluster", fails)
    with pytest.raises(CourseError, match=r"2 processes .* could not be started \(Nanny failed to start\.\): give the same"):
        farm._cluster(2)


def test_nobody_else_on_the_network_reaches_the_processes():
    """What comes in at their ports is run as the grader."""
    import psutil

    with farm._cluster(1):
        ports = [port for child in psutil.Process().children(recursive=True) for port in child.net_connections("tcp")]
    listening = {port.laddr.ip for port in ports if port.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}
