"""nbgrader's own commands on a classroom: "Autograde" of formgrader grades as the course does, and the export has its points."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
from nbgrader.apps.api import NbGraderAPI
from nbgrader.apps.exportapp import ExportApp
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config

from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.nbgrader import autograde, bridge, gradebook
from tests.grading.batch.test_farm import empty
from tests.grading.conftest import LAB, needs_sandbox, new_course

pytestmark = pytest.mark.filterwarnings("ignore:Object of type")  # SQLAlchemy's, about nbgrader


def nbgrader(room: Classroom) -> NbGraderAPI:
    config: Any = Config()
    bridge.configure(config, root=room.root)
    assert config.Autograde.autograde_preprocessors[0].endswith(f".{autograde.GradeAsCourse.__name__}")
    return NbGraderAPI(CourseDirectory(config=config), config=config)


@needs_sandbox
def test_autograde_of_formgrader_grades_as_the_course_does(tmp_path: Path, monkeypatch) -> None:
    """It runs nothing outside of the sandbox, and follows no link."""
    room = Classroom(new_course(tmp_path))
    (tmp_path / "nbgrader_config_local.py").write_text("c = get_config()\nc.LatePenalty.per_day = 10\n")
    room.folder.mkdir()
    room._registered(LAB)
    (tmp_path / "secret").write_text("the instructor's")
    folder = empty(room, "ada")
    (folder / "recipe.toml").symlink_to(tmp_path / "secret")
    for other in ("Untitled.ipynb", f"{LAB.name}-Copy1.ipynb"):  # nbgrader would make a page of each, and know neither
        shutil.copyfile(folder / f"{LAB.name}.ipynb", folder / other)
    (folder / "timestamp.txt").write_text("2026-05-02 20:00 Europe/Zurich")
    done = nbgrader(room).autograde(LAB.name, "ada")
    assert done["success"], done
    verdict = room.verdict(LAB, "ada")
    assert verdict and verdict.score == 0 and verdict.provenance["sandbox"].startswith("bubblewrap")
    graded = room.folder / "autograded" / "ada" / LAB.name
    assert "your report" in (graded / f"{LAB.name}.ipynb").read_text() and not (graded / "recipe.toml").exists()
    assert (room.folder / "reports" / "ada" / f"{LAB.name}.html").is_file()
    page = (room.folder / "feedback" / "ada" / LAB.name / f"{LAB.name}.html").read_text()
    assert page.index("course-report") < page.index("'ada'") and "Test cell" not in page, "the report comes first"
    assert "summary { display: list-item" in page and "table-layout: auto" in page
    with gradebook.opened(room.folder) as book:
        submission = book.find_submission(LAB.name, "ada")
        assert str(submission.timestamp) == "2026-05-02 18:00:00"
        assert {cell.name: cell.points for cell in gradebook.cells(submission) if cell.points} == {}
    assert not nbgrader(room).autograde("essay", "ada")["success"], "not a lab of the course"

    monkeypatch.chdir(tmp_path)
    config: Any = Config()
    bridge.configure(config, root=room.root)
    export = ExportApp(config=config)
    export.initialize(["--to=all.csv"])
    export.start()
    (row,) = csv.DictReader((tmp_path / "all.csv").read_text().splitlines())
    assert (row["student_id"], float(row["score"]), row["timestamp"]) == ("ada", 0.0, "2026-05-02 18:00:00")
