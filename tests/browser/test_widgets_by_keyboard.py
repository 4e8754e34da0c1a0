"""The controls of the course's widgets in JupyterLab, with the keyboard alone, and what a screen reader is told about them."""

from __future__ import annotations

import re

import nbformat
import pytest

from tests.browser.conftest import ARTEFACTS, TOKEN
from tests.browser.test_jupyter import STATE, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

CELLS = {
    "number": "from course_lib.widgets import PrecisionExplorer, ProfileExplorer, TimelineViewer\nnumber = PrecisionExplorer()\nnumber",
    "profile": "ProfileExplorer({1: {1: 1.0, 64: 9.0}, 64: {1: 2.0, 64: 3.0}}, [1, 2, 64])",
    "timeline": "from course_lib.profiling import Event, Timeline\n"
    "TimelineViewer(Timeline((Event('a', 'kernel', 0, 1000, 's'), Event('b', 'kernel', 3000, 1000, 's'))))",
}


@pytest.fixture(scope="module")
def page(browser, jupyter, course):
    """A notebook with three widgets, run to the end."""
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, id=name) for name, source in CELLS.items()],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, course / "keyboard.ipynb")
    page = browser.new_page(viewport={"width": 1400, "height": 3000})  # all cells at once: JupyterLab draws no others
    page.goto(f"{jupyter}/lab/tree/keyboard.ipynb?token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored", timeout=120_000)
    opened(page, "keyboard.ipynb")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator("img.widget-image").nth(len(CELLS) - 1).wait_for(timeout=120_000)
    page.set_default_timeout(20_000)
    yield page
    page.screenshot(path=ARTEFACTS / "widgets_by_keyboard.png")
    page.close()


@pytest.fixture
def notebook(page):
    """How to find a cell's output. No key that a test presses may reach the notebook."""
    outputs = page.locator(".jp-OutputArea-output:has(img.widget-image)")
    yield {name: outputs.nth(place) for place, name in enumerate(CELLS)}
    assert [cell["id"] for cell in page.evaluate(STATE)["cells"]] == list(CELLS)


def status(cell):
    return cell.get_by_role("status")


def test_a_list_is_chosen_from_by_keyboard(notebook, page):
    chosen = notebook["number"].get_by_role("combobox", name="Format")
    assert chosen.evaluate("list => list.selectedOptions[0].label") == "FP16"
    chosen.focus()
    page.keyboard.press("ArrowDown")
    status(notebook["number"]).get_by_text("BF16 stores").wait_for()
    page.keyboard.press("b")  # inserts a cell where JupyterLab hears it; here the list stays at BF16
    page.keyboard.press("i")
    page.keyboard.press("ArrowUp")
    assert chosen.evaluate("list => list === document.activeElement")
    page.keyboard.press("Tab")
    assert not chosen.evaluate("list => list === document.activeElement")


def test_a_typed_number_stays_and_the_slider_follows(notebook, page):
    cell = notebook["number"]
    box = cell.get_by_role("spinbutton", name="Size of the value, exact value")
    slider = cell.get_by_role("slider", name="Size of the value")
    cell.get_by_role("combobox", name="Format").select_option(label="FP16")
    for typed, said in (
        ("70000", "FP16 stores 70000 as inf"),
        ("300", "FP16 stores 300 as 300,"),
        ("1e-8", "are 5.96e-08 away"),
    ):
        box.fill(typed)
        page.keyboard.press("Enter")
        status(cell).get_by_text(said).wait_for()
        assert float(box.input_value()) == float(slider.get_attribute("aria-valuetext")) == float(typed)
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    status(cell).get_by_text("stores 1.1e-08").wait_for()  # two fiftieths of a power of ten


def test_a_switch_and_a_slider_without_effect(notebook, page):
    cell = notebook["number"]
    cell.get_by_role("combobox", name="Format").select_option(label="FP16")
    scale = cell.get_by_role("slider", name="Step of INT8")
    assert scale.is_disabled()
    cell.get_by_role("checkbox", name="Negative").focus()
    page.keyboard.press("Space")
    status(cell).get_by_text("stores -").wait_for()
    cell.get_by_role("combobox", name="Format").focus()
    page.keyboard.press("End")
    status(cell).get_by_text("INT8 stores").wait_for()
    page.wait_for_function("slider => !slider.disabled", arg=scale.element_handle())


def test_another_opt_is_chosen_by_keyboard(notebook, page):
    cell = notebook["profile"]
    cell.get_by_role("combobox", name="opt batch").focus()
    page.keyboard.press("ArrowDown")
    status(cell).get_by_text("tuned for 64: 0 of 3").wait_for()


def test_both_ends_of_a_range_can_be_typed(notebook, page):
    cell = notebook["timeline"]
    for name, typed in (("Zoom (ms) from", "1.234"), ("Zoom (ms) to", "3.21")):
        box = cell.get_by_role("spinbutton", name=f"{name}, exact value")
        box.fill(typed)
        page.keyboard.press("Enter")
        assert box.input_value() == typed
        page.keyboard.press("Tab")
    slider = cell.get_by_role("slider", name="Zoom (ms) from")
    assert slider.get_attribute("aria-valuetext") == "1.234"


def test_every_control_has_a_name_for_a_screen_reader(notebook):
    for cell in notebook.values():
        snapshot = cell.aria_snapshot()
        controls = re.findall(r"- (slider|spinbutton|combobox|checkbox)(.*)", snapshot)
        assert controls and all(rest.startswith(' "') for _, rest in controls), snapshot
    assert 'slider "Size of the value"' in notebook["number"].aria_snapshot()
