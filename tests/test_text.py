"""What a reader sees: no misspelt words, and no link inside the repository that leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted([*ROOT.glob("lectures/*.ipynb"), *ROOT.glob("labs/*/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")])
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/api/*.md"), *ROOT.glob("benchmarks/*.md")])
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")
KNOWN = "notin,precison"  # a name of Python's, a mistake that a test makes


def words(path: Path) -> str:
    """The text of a page, or of a notebook's cells that are not code."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


def test_no_word_is_misspelt() -> None:
    folders = ["lectures", "labs", "solutions", "docs", "course_lib", "tests", "benchmarks", "README.md", "CHANGELOG.md"]
    skipped = "*.json,*.gz,*.sqlite,*.pt,*.csv,*.log,*.png,*.pyc"
    command = [sys.executable, "-m", "codespell_lib", f"--skip={skipped}", f"--ignore-words-list={KNOWN}", *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_in_the_repository_is_dead(path: Path) -> None:
    dead = []
    for target in LINK.findall(words(path)):
        parts = urlsplit(target)
        if not parts.scheme and parts.path and not (path.parent / unquote(parts.path)).exists():
            dead.append(target)
    assert dead == []


def test_the_check_finds_a_dead_link() -> None:
    assert LINK.findall("see [there](../labs/gone.ipynb) and ![a picture](x.png)") == ["../labs/gone.ipynb", "x.png"]


# A file of the repository by its path: not a placeholder in capitals, not a part of an address or of another project's path.
MENTION = re.compile(
    r"(?<![\w/.-])(?:course_lib|tests|benchmarks|docs|lectures|solutions|labs)(?:/[\w-]+)+\.(?:py|ipynb|md|json|toml|cu|txt|png)\b"
)
MADE_UP = {
    "labs/gone.ipynb",
    "lectures/02.ipynb",
    "docs/b.py",
    "docs/deep/c.py",
    "course_lib/records/moon.json",
    "course_lib/records/my_laptop.json",
}


def test_every_file_that_is_named_exists() -> None:
    """In docstrings, comments, messages, pages and the Makefile: a file that was moved is not looked for where it was."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    gone = set()
    for name in tracked:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".ipynb", ".toml", ".cu", ".h") or path.name == "Makefile":
            found = set(MENTION.findall(path.read_text(encoding="utf-8"))) if path.is_file() else set()
            gone |= {f"{name}: {file}" for file in found - MADE_UP if "NAME" not in file and not (ROOT / file).exists()}
    assert gone == set()
