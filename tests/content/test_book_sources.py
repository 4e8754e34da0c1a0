"""What the book is made of, before Sphinx reads it: every link between its pages leads to a file. (`make book` takes minutes.)"""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import make_book  # noqa: E402

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


def test_links_between_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for page in ("_names_by_version", "_cookbook"):  # which take seconds, and have tests of their own
        monkeypatch.setattr(make_book, page, lambda: "")
    make_book.prepare(tmp_path)
    assert len(list(tmp_path.rglob("*.ipynb"))) > 25
    assert dead(tmp_path) == []
    assert "```{code-cell}\n" in (tmp_path / "api" / "widgets.md").read_text(encoding="utf-8")  # shows its widgets


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "lectures"
    folder.mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("[its page](../docs/api/none.md#part)")])
    nbformat.write(notebook, folder / "a.ipynb")
    (tmp_path / "page.md").write_text("[a](https://x.y) [b](#here) [c](page.md#there) `[d](code.md)` [e](none.md)\n")
    assert sorted(dead(tmp_path)) == [f"{folder.name}/a.ipynb: ../docs/api/none.md", "page.md: none.md"]


def test_every_lecture_is_listed_and_links_have_a_card() -> None:
    lectures = make_book._lectures()
    pages = [path for path in sorted(ROOT.glob("lectures/*.ipynb")) if path.name[:2] != "00"]
    assert re.findall(r"^1\. \[.*\]\((.*)\)", lectures, re.M) == [f"lectures/{path.name}" for path in pages]
    assert "is worth the effort\n" in lectures and "*prepares lab 01*" in lectures  # without a lab, and with one
    assert (ROOT / "docs" / "_static" / "card.png").stat().st_size < 100_000
