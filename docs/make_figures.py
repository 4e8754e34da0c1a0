"""The key figure of each lecture as an SVG file: at the top of the lecture on a repository page, and on its card in the book.

    python docs/make_figures.py [01 02 ...]

A cell with the tag ``key-figure`` draws it. The lecture runs up to that cell, so this takes some minutes for all of them. The file
remembers the code of the cell; a test says when it has changed. Lecture 3's figure is also README's first picture,
and the card of a link to the book.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from html import unescape
from pathlib import Path

import nbformat
from nbclient import NotebookClient

LECTURES = Path(__file__).resolve().parents[1] / "lectures"
TAG = "key-figure"
CARD = LECTURES.parent / "docs" / "_static" / "card.png"


def key_cell(notebook: nbformat.NotebookNode) -> int | None:
    """Place of the cell that draws the key figure."""
    return next((at for at, cell in enumerate(notebook.cells) if TAG in cell.metadata.get("tags", ())), None)


def digest(source: str) -> str:
    """What tells one version of a cell's code from another."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def made_from(picture: Path) -> tuple[str, str]:
    """The digest of the code that drew a picture, and its alt text: the takeaway, without the names of the axes."""
    text = picture.read_text(encoding="utf-8")
    source, title = re.search(r"<!-- cell (\w+) -->", text), re.search(r"<dc:title>(.*?)</dc:title>", text, re.DOTALL)
    assert source and title, f"{picture} was not drawn by this program"
    return source[1], unescape(title[1]).partition(". ")[0]


def make(lecture: Path) -> Path:
    """Run a lecture up to its key figure and write the picture.

    Raises:
        ValueError: no cell has the tag, or the cell draws nothing.
    """
    notebook = nbformat.read(lecture, as_version=4)
    place = key_cell(notebook)
    if place is None:
        raise ValueError(f"{lecture.name}: no cell has the tag {TAG!r}")
    cell = notebook.cells[place]
    del notebook.cells[place + 1 :]
    if lecture.name.startswith("03"):  # `_` is the figure; cards of links have to be PNG files
        card = f"from course_lib import style; open({str(CARD)!r}, 'wb').write(style.png(_))"
        notebook.cells.append(nbformat.v4.new_code_cell(card))
    os.environ["COURSE_FIGURES"] = "svg"  # read by `course_lib.style` in the kernel
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(LECTURES)}}).execute()
    drawn = next((output.data for output in cell.outputs if "image/svg+xml" in output.get("data", {})), None)
    if drawn is None:
        raise ValueError(f"{lecture.name}: cell {cell.id} draws no figure")
    target = LECTURES / "figures" / f"{lecture.name[:2]}.svg"
    target.write_text(f"{drawn['image/svg+xml'].rstrip()}\n<!-- cell {digest(cell.source)} -->\n", encoding="utf-8")
    return target


def main() -> None:
    """Make the pictures of the lectures that were named, or of all."""
    for lecture in sorted(LECTURES.glob("*.ipynb")):
        if (not sys.argv[1:] and lecture.name[:2] != "00") or lecture.name[:2] in sys.argv[1:]:
            target = make(lecture)
            print(
                f"{target.relative_to(LECTURES.parent)}: {target.stat().st_size / 1e3:.0f} kB, {made_from(target)[1]}",
                flush=True,
            )


if __name__ == "__main__":
    main()
