"""The course's views in Chromium: on a page without a kernel in both themes, and in JupyterLab, by mouse and by keyboard alone."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import nbformat
import pytest

from course_lib.profiling import Event, Timeline
from course_lib.teaching.widgets import LayerViewer, TimelineViewer
from tests.browser.conftest import ARTIFACTS, TOKEN
from tests.browser.legible import faults
from tests.browser.test_jupyter import STATE, opened
from tests.grading.classes import real_verdict
from tests.teaching.test_widgets import MAKERS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

THEMES = {"light": "background:#fff;color:#111", "dark": "background:#121212;color:#ddd"}
TIMES = Path(__file__).with_name("key_times.js").read_text(encoding="utf-8")
KEYS = {
    "number": ("input[type=range]", [""]),
    "tensor": ("input[type=range]", [""]),
    "profile": ("input[type=range]", [""]),
    "layers": ("[role=button][data-key='1']", ["Enter"]),
    "timeline": ("canvas", ["+", "-", "ArrowRight"]),
    "roofline": ("[role=button]", ["Enter"]),
}


@pytest.fixture(params=THEMES)
def theme(request):
    return request.param


@pytest.fixture
def shown(browser, tmp_path, theme):
    """Opens a view on a page from the disk that may load nothing else; every error of its script fails the test."""
    context, faults = browser.new_context(), []

    def show(view, width=900):
        file = Path(tmp_path, "view.html")
        head = f'<!doctype html><html data-theme="{theme}"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        file.write_text(f'{head}<body style="{THEMES[theme]}">{view.html()}', encoding="utf-8")
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(request.url) if not request.url.startswith("file:") else None)
        page.goto(file.as_uri())
        return page

    yield show
    context.close()
    assert faults == []


@pytest.mark.parametrize("name", MAKERS)
def test_a_key_shows_another_picture_at_once(name, shown, theme):
    page = shown(MAKERS[name][0]())
    times = page.evaluate(TIMES, list(KEYS[name]))
    page.screenshot(path=ARTIFACTS / f"view_{name}_{theme}.png")
    print(f"{name}: median {median(times):.1f} ms")
    assert median(times) < 50


@pytest.mark.parametrize("name", MAKERS)
def test_a_view_fits_a_telephone(name, shown, theme):
    page = shown(MAKERS[name][0](), width=390)
    page.locator(".course-stage > *").first.wait_for()
    page.screenshot(path=ARTIFACTS / f"view_{name}_{theme}_390.png", full_page=True)
    assert faults(page) == []


@pytest.mark.parametrize("name", MAKERS)
def test_a_screen_reader_is_told_everything(name, shown):
    page = shown(MAKERS[name][0]())
    snapshot = page.locator(".course-view").aria_snapshot()
    controls = re.findall(r"- (slider|spinbutton|combobox|checkbox|searchbox|button|img)(.*)", snapshot)
    assert controls and all(rest.startswith(' "') for _, rest in controls), snapshot
    assert "- status:" in snapshot
    for focused in page.locator("input, select, canvas, [role=button][tabindex='0']").all():
        if focused.is_visible():
            focused.focus()
            assert focused.evaluate("e => getComputedStyle(e).outlineStyle") != "none"
            assert focused.get_attribute("data-lm-suppress-shortcuts") == "true"


def test_the_wheel_reaches_single_kernels(shown):
    kernels = [Event(f"kernel {at}", "kernel", 12.0 * at, 5.0, "stream 7") for at in range(10_000)]  # 5 us in 120 ms
    page = shown(TimelineViewer(Timeline(tuple(kernels))))
    canvas, status = page.locator("canvas"), page.get_by_role("status")
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + 14
    before = page.evaluate("scrollY")
    canvas.focus()
    page.mouse.move(*middle)
    for _ in range(50):
        page.mouse.wheel(0, -100)
    page.wait_for_function("() => /of [\\d.]+ µs/.test(document.querySelector('[role=status]').textContent)")
    assert page.evaluate("scrollY") == before
    page.keyboard.press("n")  # the next kernel comes into view, and is told
    status.get_by_text("chosen: kernel").wait_for()
    name = re.search(r"chosen: (kernel \d+)", status.inner_text())[1]
    page.keyboard.press("n")
    status.get_by_text(f"chosen: kernel {int(name.split()[1]) + 1} (kernel), 5 µs").wait_for()
    before = page.get_by_role("slider", name="From (ms)").get_attribute("aria-valuetext")
    page.mouse.down()
    page.mouse.move(middle[0] - 120, middle[1], steps=5)
    page.mouse.up()
    assert float(page.get_by_role("slider", name="From (ms)").get_attribute("aria-valuetext")) > float(before)
    page.keyboard.press("Home")
    status.get_by_text("of 120 ms").wait_for()


def test_a_page_scrolls_past_a_timeline(shown):
    page = shown(MAKERS["timeline"][0]())
    before = page.get_by_role("status").inner_text()
    page.locator("canvas").hover()
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(200)
    assert page.get_by_role("status").inner_text() == before


def test_names_appear_under_the_pointer_and_a_click_chooses(shown):
    page = shown(
        TimelineViewer(Timeline((Event("a_kernel", "kernel", 0, 1000, "s"), Event("b_kernel", "kernel", 3000, 1000, "s"))))
    )
    at = {"x": 200, "y": 14}
    page.locator("canvas").hover(position=at)
    page.get_by_text("a_kernel (kernel), 1 ms").wait_for()
    page.locator("canvas").click(position=at)
    page.get_by_role("status").get_by_text("chosen: a_kernel").wait_for()


def test_types_and_shapes_of_layers_are_whole_on_a_telephone(shown):
    table = real_verdict().table
    texts = shown(LayerViewer(table), width=390).locator("[role=button] text").all_text_contents()
    assert len(texts) >= 2 * len(table.kernels) and not any("…" in text for text in texts)


def test_kernels_are_walked_picked_and_searched(shown):
    page = shown(MAKERS["layers"][0]())
    status = page.get_by_role("status")
    page.get_by_role("button", name="Kernel 1").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    status.get_by_text("Kernel 2, MaxPool").wait_for()
    assert page.evaluate("document.activeElement.dataset.key") == "1"  # the focus survives the new picture
    page.get_by_role("combobox", name="Build").select_option(label="after (FP16)")
    status.get_by_text("FP32 before, FP16 after").wait_for()
    page.get_by_role("searchbox").fill("conv")
    status.get_by_text("shown: 1").wait_for()
    page.get_by_role("checkbox", name="One row per kernel").check()
    page.get_by_text("Conv + Relu").first.wait_for()


def test_a_point_of_the_roofline_is_clicked(shown):
    page = shown(MAKERS["roofline"][0]())
    page.get_by_role("button").last.click()
    assert page.get_by_role("button").last.get_attribute("aria-pressed") == "true"


CELLS = {
    "number": "from course_lib.teaching.widgets import PrecisionExplorer, ProfileExplorer, TimelineViewer\n"
    "number = PrecisionExplorer()\nnumber",
    "profile": "ProfileExplorer({1: {1: 1.0, 64: 9.0}, 64: {1: 2.0, 64: 3.0}}, [1, 2, 64])",
    "timeline": "from course_lib.profiling import Event, Timeline\n"
    "TimelineViewer(Timeline((Event('a', 'kernel', 0, 1000, 's'), Event('b', 'kernel', 3000, 1000, 's'))))",
    "state": "print(number.state)",
}


@pytest.fixture(scope="module")
def lab(browser, jupyter, course):
    """A notebook with three views, run to the end."""
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source, id=name) for name, source in CELLS.items()],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    nbformat.write(book, course / "views.ipynb")
    page = browser.new_page(viewport={"width": 1400, "height": 3000})  # all cells at once: JupyterLab draws no others
    page.goto(f"{jupyter}/lab/tree/views.ipynb?token={TOKEN}")
    page.wait_for_function("() => window.jupyterapp && window.jupyterapp.restored", timeout=120_000)
    opened(page, "views.ipynb")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.locator(".course-view").nth(2).wait_for(timeout=120_000)
    page.set_default_timeout(20_000)
    yield page
    page.screenshot(path=ARTIFACTS / "views_in_jupyterlab.png")
    page.close()


@pytest.fixture
def notebook(lab):
    """The views of the notebook. No key that a test presses may reach it."""
    views = lab.locator(".course-view")
    yield {name: views.nth(place) for place, name in enumerate(("number", "profile", "timeline"))}
    assert [cell["id"] for cell in lab.evaluate(STATE)["cells"]] == list(CELLS)


def test_a_list_is_chosen_from_by_keyboard(notebook, lab):
    view = notebook["number"]
    chosen = view.get_by_role("combobox", name="Format")
    chosen.focus()
    lab.keyboard.press("ArrowDown")
    view.get_by_role("status").get_by_text("positive numbers of BF16").wait_for()
    lab.keyboard.press("b")  # inserts a cell where JupyterLab hears it; here the list stays at BF16
    lab.keyboard.press("i")
    lab.keyboard.press("ArrowUp")
    assert chosen.evaluate("list => list === document.activeElement")


def test_a_typed_number_stays_and_the_slider_follows(notebook, lab):
    view = notebook["number"]
    box = view.get_by_role("spinbutton", name="Size of the value, exact value")
    slider = view.get_by_role("slider", name="Size of the value")
    view.get_by_role("combobox", name="Format").select_option(label="FP16")
    for typed, said in (
        ("70000", "stored: inf"),
        ("300", "stored: 300"),
        ("1e-8", "10⁻⁸ away"),
    ):
        box.fill(typed)
        lab.keyboard.press("Enter")
        view.get_by_role("status").get_by_text(said).wait_for()
        assert float(box.input_value()) == float(slider.get_attribute("aria-valuetext")) == float(typed)


def test_views_are_legible_in_jupyterlab(notebook, lab):
    """Its style floats the terms of a list, so that the facts lay above each other."""
    assert [fault for fault in faults(lab) if fault.startswith("overlap")] == []


def test_keys_of_a_timeline_stay_in_it(notebook, lab):
    canvas = notebook["timeline"].locator("canvas")
    canvas.focus()
    for key in ("n", "+", "ArrowDown", "p", "Home", "b", "a", "d", "d", "x"):
        lab.keyboard.press(key)
    notebook["timeline"].get_by_role("status").get_by_text("chosen: ").wait_for()


def test_python_sees_what_was_chosen(notebook, lab):
    notebook["number"].get_by_role("combobox", name="Format").select_option(label="INT8")
    lab.wait_for_timeout(1000)
    lab.evaluate("() => { const c = window.jupyterapp.shell.currentWidget.content; c.activeCellIndex = 3; c.deselectAll(); }")
    lab.evaluate("() => window.jupyterapp.commands.execute('notebook:run-cell')")
    lab.get_by_text("'format': 'INT8'").wait_for()


def test_a_timeline_follows_a_change_of_the_theme(notebook, lab):
    canvas, theme = notebook["timeline"].locator("canvas").element_handle(), "apputils:change-theme"
    for name in ("Dark", "Light"):
        before = canvas.evaluate("canvas => canvas.toDataURL()")
        lab.evaluate(f"() => window.jupyterapp.commands.execute('{theme}', {{theme: 'JupyterLab {name}'}})")
        lab.wait_for_function("([canvas, before]) => canvas.toDataURL() !== before", arg=[canvas, before])
