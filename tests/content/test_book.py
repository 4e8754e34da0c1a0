"""The book is whole: it builds, every page is there, and no solution is in it. `make_book` itself rejects a dead link."""

import json
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from sphinx.search.en import SearchEnglish

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # a minute; `make book` rejects a dead link as well


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book without outputs: `make book` runs the lectures, and another test does."""
    folder = tmp_path_factory.mktemp("book")
    command = [sys.executable, str(ROOT / "docs" / "make_book.py"), "--no-execute", "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> list[Path]:
    return [page for page in site.rglob("*.html") if "_static" not in page.parts]


def test_every_notebook_and_package_has_a_page(pages: list[Path], site: Path) -> None:
    expected = [
        path.relative_to(ROOT).with_suffix(".html")
        for kind in ("lectures/*.ipynb", "labs/*/*.ipynb")
        for path in ROOT.glob(kind)
    ]
    expected += [Path("cookbook.html"), Path("names_by_version.html"), Path("instructors.html"), Path("search.html")]
    expected += [Path("reference/engines.html"), Path("api/engines.html")]
    assert [str(page) for page in expected if site / page not in pages] == []


def test_no_solution_is_in_it(pages: list[Path]) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    for path in ROOT.glob("solutions/*/*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            solved = [part.split("### END SOLUTION")[0] for part in cell.source.split("### BEGIN SOLUTION")[1:]]
            for line in (line.strip() for part in solved for line in part.splitlines()):
                if len(line) > 50:
                    assert line not in text, f"{path.name}: {line}"
    assert "Rubric" not in text


def test_the_search_finds_lectures_and_tensorrts_lines(site: Path) -> None:
    """The search shows pages that hold all words of a query, each reduced to its stem."""
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").removeprefix("Search.setIndex(").removesuffix(")"))
    assert "lectures/02_architecture_and_workflow" in index["docnames"] and "calibr" in index["terms"]
    page = index["docnames"].index("messages")
    language = SearchEnglish({})
    for line in (
        "Skipping tactic due to insufficient memory on requested size",
        "INT64 weights, Attempting to cast down to INT32",
        "One or more weights outside the range of INT32 was clamped",
        "Using default stream in enqueueV3() may lead to performance issues",
    ):
        for word in set(re.findall(r"\w+", line.lower())) - language.stopwords:
            found = index["terms"].get(language.stem(word), index["terms"].get(word))
            assert page in (found if isinstance(found, list) else [found]), word
