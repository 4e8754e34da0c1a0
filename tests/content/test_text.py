"""What a reader sees: no misspelt words, and no link inside the repository that leads nowhere."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted([*ROOT.glob("lectures/*.ipynb"), *ROOT.glob("labs/*/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")])
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/api/*.md"), *ROOT.glob("benchmarks/*.md")])
LINK = re.compile(r"(?<!`)\[[^\]\n]*\]\(([^)\s]+)\)")


def words(path: Path) -> str:
    """The text of a page, or of a notebook's cells that are not code."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    return "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")


def spelling(*paths: Path) -> subprocess.CompletedProcess[str]:
    """As `make lint` and the hook before a commit call it; what is skipped and ignored is in pyproject.toml."""
    return subprocess.run([sys.executable, "-m", "codespell_lib", *paths], cwd=ROOT, capture_output=True, text=True)


def test_no_word_is_misspelled_british_or_on_the_list_of_words_to_avoid() -> None:
    done = spelling()
    assert done.returncode == 0, done.stdout + done.stderr


PLANTED = {
    "draw_colour = 1": "colour",  # codespell:ignore
    "class ColourBar: ...": "Colour",  # codespell:ignore
    "COLOURS = ()": "COLOURS",  # codespell:ignore
    "def test_a_hand_in_is_graded(): ...": "hand_in",  # codespell:ignore
    '    "the behaviour\\n",': "behaviour",  # codespell:ignore
    "# the first Hand-in": "Hand-in",  # codespell:ignore
    "recieve": "recieve",  # codespell:ignore
}


def test_planted_words_and_names_are_found_and_what_is_right_is_not(tmp_path: Path) -> None:
    to_avoid = [line.partition("->")[0] for line in (ROOT / "docs/words.txt").read_text().splitlines()]
    planted = {**{f"Here {word} stands in a sentence.": word for word in to_avoid}, **PLANTED}
    file, page = tmp_path / "planted.py", tmp_path / "page.md"
    file.write_text("".join(f"{line}\n" for line in planted))
    page.write_text(
        "There is no GPU. A plan is no longer valid, and it is no faster. You hand in a notebook of serialized colors.\n"
    )
    found = spelling(file, page).stdout
    expected = [f"planted.py:{number}: {word} ==> " for number, word in enumerate(planted.values(), 1)]
    assert [row for row in expected if row not in found] == [] and "page.md" not in found


def test_a_skipped_file_is_skipped_however_it_is_named() -> None:
    """The hook before a commit names files, `make lint` names none."""
    done = spelling(Path("LICENSE"), Path("docs/words.txt"), Path("course_lib/records/nsys/README.md"))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_link_in_the_repository_is_dead(path: Path) -> None:
    targets = [urlsplit(target) for target in LINK.findall(words(path))]
    files = [unquote(target.path) for target in targets if not target.scheme and target.path]
    assert [file for file in files if not (path.parent / file).exists()] == []


# A file of the repository by its path: not a placeholder in capitals, not a part of an address or of another project's path.
MENTION = re.compile(
    r"(?<![\w/.-])(?:course_lib|tests|benchmarks|docs|lectures|solutions|labs)(?:/[\w-]+)+\.(?:py|ipynb|md|json|toml|cu|txt|png)\b"
)
MADE_UP = {
    "lectures/02.ipynb",
    "docs/b.py",
    "docs/deep/c.py",
    "course_lib/records/moon.json",
    "course_lib/records/my_laptop.json",
    # of a lab that `course new-lab` would write
    "course_lib/labs/lab42_batches/lab.py",
    "course_lib/labs/lab42_batches/checks.py",
    "course_lib/labs/lab42_batches/reference.py",
    "labs/lab42_batches/lab42_batches.ipynb",
    "solutions/lab42_batches/lab42_batches.ipynb",
    "tests/labs/test_lab42.py",
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
