"""A learner's first hour: from the start page to a lecture, its widget, a lab's check, and an instructor's formgrader."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import ARTIFACTS, TOKEN
from tests.browser.legible import faults

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
STATE, SHOW = (Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8") for name in ("notebook_state", "show_cell"))


CHANGED = "() => window.jupyterapp.shell.currentWidget.context.model.dirty"


def opened(page, path):
    """Wait until the notebook is in front and its kernel answers."""
    page.wait_for_function(
        f"() => {{ const s = ({STATE})(); return s && s.path.endsWith('{path}') && s.status === 'idle'; }}", timeout=120_000
    )


def start(page, jupyter):
    page.goto(f"{jupyter}/?token={TOKEN}")  # where `course lab` sends a browser
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored", timeout=120_000)
    opened(page, "00_start_here.ipynb")


def test_lecture_03_from_the_start_page_to_its_slider(page, jupyter):
    start(page, jupyter)
    page.screenshot(path=ARTIFACTS / "start_page.png")
    assert page.get_by_text("Modified", exact=True).count() == 0, "the list of files has room for names"
    cut = "() => [...document.querySelectorAll('.jp-DirListing-itemText')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert page.evaluate(cut) == 0 and page.evaluate(CHANGED) is False, "whole names, and opening changes nothing"
    following, picture = page.get_by_role("link", name="Start with lecture 1"), page.get_by_role("img", name="The bytes that")
    assert all((box := each.bounding_box()) and box["y"] + box["height"] < 1000 for each in (following, picture))
    page.evaluate(SHOW, "lectures")
    page.get_by_role("link", name="3. Graph optimization and fusion").click()
    opened(page, "03_graph_optimization_and_fusion.ipynb")

    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    counts = [cell["count"] for cell in page.evaluate(STATE)["cells"] if cell["type"] == "code"]
    assert counts == list(range(1, len(counts) + 1)) and page.evaluate(CHANGED) is True

    page.evaluate(SHOW, "precision-explorer")
    cell = page.locator('[data-shown="precision-explorer"]')
    picture, slider = cell.locator(".course-stage"), cell.get_by_role("slider").first
    picture.wait_for()
    slider.scroll_into_view_if_needed()
    before, box = picture.inner_html(), picture.bounding_box()
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("([stage, before]) => stage.innerHTML !== before", arg=[picture.element_handle(), before])
    after = picture.bounding_box()
    assert (after["width"], after["height"]) == (box["width"], box["height"])  # no layout shift


def test_lab_01_marks_the_cells_to_solve_and_an_unsolved_check_gives_a_hint(page, jupyter):
    page.goto(f"{jupyter}/lab/tree/labs/lab01_first_engine/lab01_first_engine.ipynb?token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored", timeout=120_000)
    opened(page, "lab01_first_engine.ipynb")
    for cell in ("setup", "check-profile"):
        page.evaluate(SHOW, cell)
        page.evaluate("() => { window.ran = window.jupyterapp.commands.execute('notebook:run-cell'); }")
        if cell == "setup":  # imports PyTorch
            page.locator("[data-shown=setup].course-running").wait_for()
        page.evaluate("() => window.ran")
    marked = "() => window.jupyterapp.shell.currentWidget.content.widgets.filter(w => w.hasClass('course-answer')).map(w => w.model.id)"
    assert page.evaluate(marked) == ["export", "recipe", "variants", "decision", "answer"]
    mark = page.locator(".course-answer .jp-InputArea-editor").first.evaluate(
        "box => getComputedStyle(box, '::before').content"
    )
    assert mark == '"Your answer"' and page.locator(".course-running").count() == 0
    output = page.locator('[data-shown="check-profile"] .jp-OutputArea')
    output.get_by_text("model.onnx is missing").wait_for()
    assert "Task 1" in output.inner_text()
    output.scroll_into_view_if_needed()
    for theme in ("Dark", "Light"):
        page.evaluate(f"() => window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
        assert [fault for fault in faults(page) if ".ipynb" not in fault] == []  # JupyterLab shortens the names of open files


def test_formgrader_lists_the_labs(page, jupyter):
    page.goto(f"{jupyter}/formgrader?token={TOKEN}")
    page.get_by_text("lab01_first_engine").first.wait_for()
    listed = page.locator("#main-page, body").first.inner_text()
    assert all(f"lab0{number}_" in listed for number in range(1, 10))
