"""The key figure of each lecture as a picture: it stands at the top of the lecture on a repository page, and on its card in the book.

    python docs/make_figures.py [01 02 ...]

A cell with the tag ``key-figure`` draws it. The lecture runs up to that cell, so this takes some minutes for all of them. The file
remembers the code of the cell; a test says when it has changed.
"""

from __future__ import annotations

import hashlib
import sys
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image
from PIL.PngImagePlugin import PngInfo

LECTURES = Path(__file__).resolve().parents[1] / "lectures"
TAG, WIDTH = "key-figure", 900  # pixels


def key_cell(notebook: nbformat.NotebookNode) -> int | None:
    """Place of the cell that draws the key figure."""
    return next((at for at, cell in enumerate(notebook.cells) if TAG in cell.metadata.get("tags", ())), None)


def digest(source: str) -> str:
    """What tells one version of a cell's code from another."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def made_from(picture: Path) -> tuple[str, str]:
    """The digest of the code that drew a picture, and its alt text."""
    with Image.open(picture) as opened:
        return opened.info["Source"], opened.info["Description"]


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
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(LECTURES)}}).execute()
    drawn = next((one for one in cell.outputs if "image/png" in one.get("data", {})), None)
    if drawn is None:
        raise ValueError(f"{lecture.name}: cell {cell.id} draws no figure")
    told = PngInfo()
    told.add_text("Source", digest(cell.source))
    told.add_itxt("Description", drawn.metadata["image/png"]["alt"].partition(". ")[0])  # its title
    target = LECTURES / "figures" / f"{lecture.name[:2]}.png"
    target.parent.mkdir(exist_ok=True)
    with Image.open(BytesIO(b64decode(drawn["data"]["image/png"]))) as picture:
        picture.thumbnail((WIDTH, WIDTH))
        picture.convert("RGB").quantize(64).save(target, optimize=True, pnginfo=told)
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
