"""What the book is made of, before Sphinx reads it: every link between its pages leads to a file. (`make book` takes minutes.)"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from urllib.parse import unquote

import nbformat

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s#]+)")  # a target in Markdown that is neither an address nor an anchor


def texts(page: Path) -> list[str]:
    if page.suffix == ".md":
        return [page.read_text(encoding="utf-8")]
    cells = nbformat.read(page, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


def dead(folder: Path) -> list[str]:
    """Each link of a page that leads to no file."""
    found = []
    for page in (*folder.rglob("*.md"), *folder.rglob("*.ipynb")):
        targets = {
            target for text in texts(page) for target in LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL))
        }
        found += [
            f"{page.relative_to(folder)}: {target}"
            for target in sorted(targets)
            if not (page.parent / unquote(target)).exists()
        ]
    return found


def test_links_between_pages(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_book", ROOT / "docs" / "make_book.py")
    assert spec and spec.loader
    make_book = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_book)
    make_book.prepare(tmp_path)
    assert len(list(tmp_path.rglob("*.ipynb"))) > 25
    assert dead(tmp_path) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "lectures"
    folder.mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("[its page](../docs/api/none.md#part)")])
    nbformat.write(notebook, folder / "a.ipynb")
    (tmp_path / "page.md").write_text("[a](https://x.y) [b](#here) [c](page.md#there) `[d](code.md)` [e](none.md)\n")
    assert sorted(dead(tmp_path)) == [f"{folder.name}/a.ipynb: ../docs/api/none.md", "page.md: none.md"]
