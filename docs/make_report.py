"""Draw the pictures of a report in README, docs/report.png and docs/report_dark.png: the reference of lab 01, as a phone shows it.

    python docs/make_report.py

A card has the points, the task about speed and its plot. It needs Chromium and the extra `browser`. The file remembers the templates
and the lab's tasks; a test says when they have changed.
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
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import Cell
from course_lib.grading.reports import report

LAB = labs.find("lab01")
PICTURES = {theme: Path(__file__).with_name(name) for theme, name in (("light", "report.png"), ("dark", "report_dark.png"))}
_TEMPLATES = Path(report.__file__).with_name("templates")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_WIDTH = 380  # pixels of README's picture, which has two for each
_CARD = """body { margin: 0 } main.course-report { border: 1px solid var(--line); padding: 16px }
main > * { display: none } main > :is(.total, .task:nth-of-type(3), .figures) { display: block } .total { margin: 0 !important }
.task * { border-bottom: 0 !important } .figures { margin: 0 0 -16px !important } figure:not(:last-child) { display: none }"""


def digest() -> str:
    """What tells one version of the report from another: its templates, and the tasks of the lab."""
    texts = [(_TEMPLATES / name).read_text(encoding="utf-8") for name in ("points.html", "report.html", "style.css")]
    return hashlib.sha256("".join([*texts, *(str(task) for task in LAB.tasks)]).encode()).hexdigest()[:16]


def main() -> None:
    """Grade the reference and save the pictures.

    Raises:
        SystemExit: there is no Chromium.
    """
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"a picture of the report needs a browser: install one of {', '.join(_BROWSERS)}")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        LAB.write_reference(folder)
        verdict = judge(LAB, folder, trusted=True)
        cells = [Cell(outcome.task.id, outcome.points, outcome.task.points) for outcome in verdict.outcomes]
        html = report.page(LAB, verdict, "ada", [*cells, Cell("written", 2, 2, by_hand=True)])
        source = PngInfo()
        source.add_text("Source", digest())
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for theme, picture in PICTURES.items():
            page = chromium.new_page(viewport={"width": _WIDTH, "height": 900}, device_scale_factor=2, color_scheme=theme)
            page.set_content(html)
            page.add_style_tag(content=_CARD)
            with Image.open(BytesIO(page.locator("main").screenshot())) as taken:
                taken.convert("RGB").quantize(64).save(picture, optimize=True, pnginfo=source)


if __name__ == "__main__":
    main()
