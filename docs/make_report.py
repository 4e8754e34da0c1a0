"""Take README's screenshots, in both themes, as a phone shows them: docs/report.png is of the report on lab 01's reference, and
docs/layers.png of the drawing of the demo's engine.

    python docs/make_report.py

The report's has the points, the task about speed and its plot. It needs Chromium and the extra `browser`. A file remembers the templates,
the lab's tasks and the scripts that it was made from; a test says when they have changed.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from course_lib import labs
from course_lib.engines import build
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import Cell
from course_lib.grading.reports import report
from course_lib.models import classifier, export_onnx
from course_lib.recipe import Profile, Recipe
from course_lib.teaching.widgets import LayerViewer, view

LAB = labs.find("lab01")
PICTURES = {
    (name, theme): Path(__file__).with_name(f"{name}{end}.png")
    for name in ("report", "layers")
    for theme, end in (("light", ""), ("dark", "_dark"))
}
_TEMPLATES = Path(report.__file__).with_name("templates")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WIDTH = 380  # pixels of README's picture, which has two for each
_DRAWING = """:root { color-scheme: light dark; font-family: sans-serif } body { margin: 0 }
main { max-height: 543px; overflow: hidden }"""
_CARD = """body { margin: 0 } main.course-report { border: 1px solid var(--line); padding: 16px }
main > * { display: none } main > :is(.total, .task:nth-of-type(3), .figures) { display: block } .total { margin: 0 !important }
.task * { border-bottom: 0 !important } .figures { margin: 0 0 -16px !important } figure:not(:last-child) { display: none }"""


def digest() -> str:
    """What tells one version of the pages from another: the report's templates, the tasks of the lab, and the drawing's scripts."""
    texts = [(_TEMPLATES / name).read_text(encoding="utf-8") for name in ("points.html", "report.html", "style.css")]
    texts += [
        *map(str, LAB.tasks),
        view.source("layers"),
        Path(view.__file__).with_name("browser").joinpath("view.css").read_text(),
    ]
    return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]


def pages() -> dict[str, tuple[str, str]]:
    """The HTML of each page that is pictured, and CSS that leaves the part to show in its `main`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        LAB.write_reference(folder)
        verdict = judge(LAB, folder, trusted=True)
        model = folder / "demo.onnx"  # README's command and numbers
        export_onnx(classifier("small"), model)
        four = Recipe(profiles=[Profile(image=dict.fromkeys(("min", "opt", "max"), (4, 1, 32, 32)))])
        plan = build(model, four, backend="tensorrt_rtx")
    cells = [Cell(outcome.task.id, outcome.points, outcome.task.points) for outcome in verdict.outcomes]
    html = report.page(LAB, verdict, "ada", [*cells, Cell("written", 2, 2, by_hand=True)])
    return {"report": (html, _CARD), "layers": (f"<main>{LayerViewer(plan.layers).html()}</main>", _DRAWING)}


def main() -> None:
    """Grade the reference and save the pictures.

    Raises:
        SystemExit: there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"screenshots need a browser: install one of {', '.join(_BROWSERS)}")
    source = PngInfo()
    source.add_text("Source", digest())
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        made = pages()
        for (name, theme), picture in PICTURES.items():
            html, style = made[name]
            page = chromium.new_page(viewport={"width": _WIDTH, "height": 900}, device_scale_factor=2, color_scheme=theme)
            page.set_content(html)
            page.add_style_tag(content=style)
            with Image.open(BytesIO(page.locator("main").screenshot())) as taken:
                taken.convert("RGB").quantize(64).save(picture, optimize=True, pnginfo=source)


if __name__ == "__main__":
    main()
