"""Each lecture begins with its key figure: a committed picture with a text for those who cannot see it, drawn by today's code."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import make_figures  # noqa: E402

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
