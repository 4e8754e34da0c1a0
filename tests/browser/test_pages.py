"""The pages that people look at, on a desk and on a phone, in both themes: nothing is clipped, overlaps, is crossed or is faint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_output

from course_lib import labs
from course_lib.grading.judge.review import Cell
from course_lib.grading.judge.verdict import Verdict
from tests.browser.conftest import ARTIFACTS, ROOT
from tests.browser.legible import faults
from tests.content.test_notebooks import executed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

BOOK = (
    "index",
    "lectures/00_start_here",
    "lectures/03_graph_optimization_and_fusion",
    "lectures/05_reduced_precision",
    "lectures/12_profiling",
    "labs/lab01_first_engine/lab01_first_engine",
)
GRADING = ("report", "untouched", "feedback", "class", "leaderboard", "layers")


@pytest.fixture(scope="module")
def grading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `course grade`, `course report` and `course layers --html` write: the reference of lab 01, and a class of thirty."""
    from course_lib.cli.drawn_layers import layers_page
    from course_lib.grading.reports import class_page, class_report, leaderboard, report
    from tests.grading.classes import class_of_30, new_room, real_verdict
    from tests.grading.conftest import LAB
    from tests.grading.reports.test_report import LAYERS

    verdict = replace(real_verdict(), layers=LAYERS)
    untouched = replace(
        verdict, outcomes=LAB.zero_outcomes("model.onnx is missing.", "Run the cell of task 1."), comparison=None
    )
    cells = _cells(verdict, Cell("written", 0, 2, marked=True))
    room = new_room(tmp_path_factory.mktemp("class"))
    class_of_30(room)
    found = class_report.read(LAB, room)
    assert verdict.table
    pages = {
        "report": report.page(LAB, verdict, "ada", cells),
        "untouched": report.page(
            LAB, replace(untouched, table=None, layers=None), "ben", _cells(untouched, Cell("written", 0, 2))
        ),
        "feedback": _feedback(LAB, report.body(verdict, cells), tmp_path_factory.mktemp("lab")),
        "class": class_page.page(found),
        "leaderboard": class_page.board(found, leaderboard.ranked(found.submissions)),
        "layers": layers_page(verdict.table, "tensorrt_rtx for sm89"),
    }
    folder = tmp_path_factory.mktemp("pages")
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return folder


def _cells(verdict: Verdict, written: Cell) -> list[Cell]:
    return [*(Cell(outcome.task.id, outcome.points, outcome.task.points) for outcome in verdict.outcomes), written]


def _feedback(lab: labs.Lab, body: str, folder: Path) -> str:
    """nbgrader's page of a graded notebook with its outputs, and with the report first."""
    from nbconvert.exporters import HTMLExporter
    from nbgrader.converters import GenerateFeedback
    from nbgrader.coursedir import CourseDirectory

    notebook = executed(ROOT / "solutions" / lab.name / f"{lab.name}.ipynb", folder)
    for cell in notebook.cells:
        if known := cell.metadata.get("nbgrader"):
            known.update(score=0, grade=known["grade"] and cell.cell_type == "markdown")
    shown = new_output("display_data", data={"text/html": body})
    notebook.cells.insert(0, new_code_cell("# The report", outputs=[shown]))
    exporter = HTMLExporter(config=GenerateFeedback(coursedir=CourseDirectory()).config)
    known = {"notebook": lab.name, "score": 10, "max_score": 12, "late_penalty": 0}
    return str(exporter.from_notebook_node(notebook, {"nbgrader": known})[0])


@pytest.fixture(scope="module")
def pages(grading: Path, site: Path) -> dict[str, Path]:
    of_book = {Path(name).name: site / f"{name}.html" for name in BOOK}
    return of_book | {name: grading / f"{name}.html" for name in GRADING}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", [*(Path(name).name for name in BOOK), *GRADING])
def test_a_page_is_legible(browser, pages, name, width, theme):
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    page.goto(pages[name].as_uri())
    page.evaluate("async () => { if (window.MathJax?.startup) await MathJax.startup.promise; }")
    found = faults(page)
    ARTIFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTIFACTS / f"page_{name}_{width}_{theme}.png")
    page.close()
    assert found == []


BAD = {
    "the page scrolls": '<div style="width: 3000px">wide</div>',
    "clipped: many": '<div style="width: 60px; overflow: hidden; white-space: nowrap">many words in a narrow box</div>',
    "clipped: long": "<svg width=60 height=40><text x=10 y=30>long words in a narrow picture</text></svg>",
    "overlap": '<p>first</p><p style="margin-top: -2.2em">second</p>',
    "crossed": '<svg width=200 height=60><text x=10 y=30>words</text><path d="M0 26 L200 25" stroke="red" fill="none"/></svg>',
    "contrast 2.8": '<p style="color: #999">faint</p>',
    "contrast 2.2": '<svg width=90 height=40><rect width=90 height=40 fill="#777"/><text x=9 y=30 fill="#444">on a box</text></svg>',
}


@pytest.mark.parametrize("fault", BAD)
def test_the_check_finds(fault, browser, tmp_path):
    scrolls = "<div style='width: 9em; overflow-x: auto; white-space: nowrap'>a box that scrolls</div>"
    fine = f"<details><summary>fold</summary>hidden</details>{scrolls}"
    file = tmp_path / "page.html"
    file.write_text(f"<!doctype html><body style='background: #fff'>{fine}{BAD[fault]}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(file.as_uri())
    found = faults(page)
    page.close()
    assert found and all(one.startswith(fault) for one in found)
