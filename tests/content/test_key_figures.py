"""Each lecture begins with its key figure: a committed picture with a text for those who cannot see it, drawn by today's code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from PIL import Image

from course_lib.profiling.layer_tables.memory_traffic import RoundTrip, Traffic
from course_lib.teaching.fusion import draw_round_trips

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import make_figures  # noqa: E402
import make_report  # noqa: E402

LECTURES = sorted(path for path in ROOT.glob("lectures/*.ipynb") if path.name[:2] != "00")


@pytest.mark.parametrize("lecture", LECTURES, ids=lambda path: path.stem)
def test_the_picture_is_that_of_its_cell(lecture: Path) -> None:
    notebook = nbformat.read(lecture, as_version=4)
    place = make_figures.key_cell(notebook)
    assert place is not None, f"no cell of {lecture.name} has the tag {make_figures.TAG!r}"
    picture = ROOT / "lectures" / "figures" / f"{lecture.name[:2]}.png"
    source, told = make_figures.made_from(picture)
    current = make_figures.digest(notebook.cells[place].source)
    assert source == current, f"the cell has changed: python docs/make_figures.py {lecture.name[:2]}"
    shown = re.search(rf"!\[([^]]+)\]\(figures/{picture.name}\)", notebook.cells[0].source)
    assert shown, f"the first cell of {lecture.name} does not show figures/{picture.name}"
    assert shown[1] == told
    assert picture.stat().st_size < 100_000


PICTURES = sorted([*ROOT.glob("lectures/figures/*.png"), *ROOT.glob("docs/*.png")])


@pytest.mark.parametrize("picture", [path for path in PICTURES if path.stem != "report"], ids=lambda path: path.stem)
def test_nothing_is_cut_at_the_edge(picture: Path) -> None:
    """A title that is longer than its figure leaves dark pixels in the outermost row or column."""
    with Image.open(picture) as opened:
        gray = np.asarray(opened.convert("L"))
    edges = {"top": gray[0], "bottom": gray[-1], "left": gray[:, 0], "right": gray[:, -1]}
    assert [name for name, edge in edges.items() if edge.min() < 200] == [], "text or a drawing is cut"


def test_the_picture_of_a_report_is_that_of_its_templates() -> None:
    with Image.open(make_report.PICTURE) as opened:
        assert opened.info["Source"] == make_report.digest(), "the report has changed: python docs/make_report.py"


def test_the_megabytes_of_kernels_add_up() -> None:
    trips = [
        RoundTrip("a", "Conv", {"x": 400_000}, 100_000, {"y": 2_500_000}),
        RoundTrip("b", "", {"y": 2_500_000}, 0, {"z": 8_000}),
    ]
    figure = draw_round_trips(Traffic(tuple(trips)), Traffic((RoundTrip("ab", "Conv", {"x": 400_000}, 0, {"z": 8_000}),)))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["Conv", "3.0 MB", "(change of layout)", "2.5 MB", "before: 5.5 MB in 2 round trips", "Conv", "0.4 MB",
                     "after: 0.4 MB in 1 round trip"]  # fmt: skip
