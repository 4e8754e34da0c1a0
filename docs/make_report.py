"""Draw the pictures of a report in README, docs/report.png and docs/report_dark.png: the reference of lab 01, as a browser shows it.

    python docs/make_report.py

It needs Chromium. The file remembers the templates and the lab's tasks; a test says when they have changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
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
# pixels: the points with their reasons, as high as README's list beside them, and wide enough to be read on a telephone
_SIZE = (640, 626)


def digest() -> str:
    """What tells one version of the report from another: its templates, and the tasks of the lab."""
    texts = [(_TEMPLATES / name).read_text(encoding="utf-8") for name in ("points.html", "report.html", "style.css")]
    return hashlib.sha256("".join([*texts, *(str(task) for task in LAB.tasks)]).encode()).hexdigest()[:16]


def main() -> None:
    """Grade the reference and save the pictures.

    Raises:
        SystemExit: there is no Chromium.
    """
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"a picture of the report needs a browser: install one of {', '.join(_BROWSERS)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        LAB.write_reference(folder)
        verdict = judge(LAB, folder, trusted=True)
        cells = [Cell(outcome.task.id, outcome.points, outcome.task.points) for outcome in verdict.outcomes]
        html, shot = folder / "report.html", folder / "report.png"
        html.write_text(report.page(LAB, verdict, "ada", [*cells, Cell("written", 2, 2, by_hand=True)]), encoding="utf-8")
        size = f"--window-size={_SIZE[0]},{_SIZE[1]}"
        command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", size, f"--screenshot={shot}"]
        told = PngInfo()
        told.add_text("Source", digest())
        for theme, picture in PICTURES.items():
            dark = ["--blink-settings=preferredColorScheme=0"] * (theme == "dark")
            subprocess.run([*command, *dark, html.as_uri()], check=True, capture_output=True, timeout=120)
            with Image.open(shot) as taken:
                taken.convert("RGB").quantize(64).save(picture, optimize=True, pnginfo=told)


if __name__ == "__main__":
    main()
