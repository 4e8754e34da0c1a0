"""Points given by hand outlive grading again: through nbgrader's interface and through a running formgrader."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime

import nbformat
import onnx
import pytest
from nbgrader.api import Gradebook

from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.reports import class_files
from course_lib.grading.reports.class_report import read
from course_lib.labs.lab01_first_engine.checks import SERVICE
from course_lib.labs.lab01_first_engine.reference import recipe as reference_recipe
from tests.grading.conftest import LAB, ROOT, new_course, submit

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # a batch graded twice, and its own server


def gradebook(room: Classroom) -> Gradebook:
    return Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}")


@pytest.fixture(scope="module")
def room(tmp_path_factory) -> Classroom:
    """A submission with an answer to the written question, graded once; our own files, so without the sandbox.

    Its recipe is right and its model is another one: 3 of 10 points, and no time goes into a race.
    """
    root = new_course(tmp_path_factory.mktemp("course"))
    shutil.copy(ROOT / "nbgrader_config.py", root)
    made = Classroom(root, trusted=True, examiner={"builder": "onnxruntime", "runner": "onnxruntime"})
    folder = submit(made, "ada")
    onnx.save(one_relu(), folder / "model.onnx")
    reference_recipe(SERVICE).save(folder / "recipe.toml")
    path = folder / f"{LAB.name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    written = next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "written")
    written.source = "Because the kernels of the engine were fused."
    nbformat.write(notebook, path)
    (folder / "timestamp.txt").write_text("2026-05-02 18:00:00 UTC")
    for student, answer in (("ben", None), ("cay", "  \n")):
        path = submit(made, student) / f"{LAB.name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        cell = next(cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == "written")
        cell.source = cell.source if answer is None else answer
        nbformat.write(notebook, path)
    assert [grade.error for grade in made.grade(LAB, ["ada", "ben", "cay"])] == [""] * 3
    with gradebook(made) as opened:
        opened.update_or_create_assignment(LAB.name, duedate=datetime(2026, 5, 1, 12))
    return made


def one_relu() -> onnx.ModelProto:
    image, logits = (onnx.helper.make_tensor_value_info(name, 1, ("n", 1, 32, 32)) for name in ("image", "logits"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["image"], ["logits"], name="relu")], "g", [image], [logits])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


def written(opened: Gradebook):
    return opened.find_grade("written", LAB.name, LAB.name, "ada")


@pytest.mark.parametrize("student", ["ben", "cay"])
def test_a_question_that_was_not_answered_needs_no_review(room, student):
    """Released words, or none at all: no points, and the list of who needs an instructor is as long as it has to be."""
    found = next(one for one in read(LAB, room).submissions if one.student == student)
    assert not found.review.needed and found.score == 0
    with gradebook(room) as opened:
        grade = opened.find_grade("written", LAB.name, LAB.name, student)
        assert (grade.auto_score, grade.needs_manual_grade) == (0, False)


def test_the_report_is_the_first_thing_on_the_feedback_page(room):
    page = (room.folder / "feedback" / "ada" / LAB.name / f"{LAB.name}.html").read_text()
    assert page.index("course-report") < page.index("<h1")
    assert all(f"<b>{task.title}</b>" in page for task in LAB.tasks) and "Test cell" not in page
    assert "3.0 / 12.0" in page and "3 <span>of 12 points; 2 more are open" in page
    assert "summary { display: list-item" in page and "table-layout: auto" in page


def test_the_question_waits_until_somebody_gives_points(room):
    found = read(LAB, room).submissions[0]
    assert [one.text for one in found.review.reasons] == ["the written question has no points yet"]
    assert (found.review.points.earned, found.review.points.open, found.review.points.lost) == (3, 2, 7)
    assert found.late_s == 30 * 3600


def test_points_by_hand_are_still_there_after_grading_again(room):
    with gradebook(room) as opened:
        grade = written(opened)
        grade.manual_score, grade.needs_manual_grade = 1.5, False
        opened.db.commit()
    again = room.grade(LAB, ["ada"])[0]
    with gradebook(room) as opened:
        assert written(opened).manual_score == 1.5
        assert opened.find_submission(LAB.name, "ada").score == again.score == 4.5
    found = read(LAB, room).submissions[0]
    assert found.score == found.judged + 1.5 and found.max_score == 12 and found.judged == 3
    assert again.review == found.review
    for page in (again.report, again.feedback):
        assert page.read_text().count("4.5 <span>of 12 points") == 1
    (reason,) = found.review.reasons
    assert reason.code == "by_hand" and "before the last grading, check whether they still fit" in reason.text


def test_points_through_a_running_formgrader(room, tmp_path):
    """PUT as the page does, then the question no longer waits."""
    with gradebook(room) as opened:
        identity = written(opened).id
    with served(room, tmp_path) as address:
        body = json.dumps({"manual_score": 2.0, "extra_credit": 0}).encode()
        request = urllib.request.Request(f"{address}/formgrader/api/grade/{identity}", body, method="PUT")
        answer = json.load(urllib.request.urlopen(authorized(request), timeout=20))
    assert answer["manual_score"] == 2.0
    found = read(LAB, room).submissions[0]
    assert found.score == found.judged + 2 and not found.review.needed
    page = room.folder / "reports" / "ada" / f"{LAB.name}.html"
    assert ">5 <span>of 12 points" not in page.read_text()
    class_files.write(LAB, room)
    assert ">5 <span>of 12 points" in page.read_text(), "the page that the class report links has the same number"


TOKEN = "grade-with-care"


def authorized(request: urllib.request.Request) -> urllib.request.Request:
    request.add_header("Authorization", f"token {TOKEN}")
    return request


class served:
    """A Jupyter server with formgrader in the room's course, stopped at the end."""

    def __init__(self, room: Classroom, home):
        self.room, self.home = room, home

    def __enter__(self) -> str:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--port={port}", "--port-retries=0",
                   f"--IdentityProvider.token={TOKEN}", "--ServerApp.root_dir=."]  # fmt: skip
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JUPYTER_CONFIG_DIR": str(self.home),
            "JUPYTER_DATA_DIR": str(self.home),
        }
        self.log = open(self.home / "log", "wb")
        self.process = subprocess.Popen(command, cwd=self.room.root, env=environment, stdout=self.log, stderr=self.log)
        address = f"http://127.0.0.1:{port}"
        for _ in range(120):
            try:
                urllib.request.urlopen(authorized(urllib.request.Request(f"{address}/formgrader/api/status")), timeout=2)
                return address
            except (urllib.error.URLError, OSError):
                time.sleep(0.25)
        self.__exit__()
        pytest.fail(f"formgrader did not start: {(self.home / 'log').read_text()[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()
