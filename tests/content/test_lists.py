"""Lists that name the same things agree: labs and lectures on README, on the start page, in tests and in benchmarks."""

import re
from pathlib import Path

import nbformat
import pytest

from benchmarks import labs as graded_on_a_gpu
from course_lib import labs
from tests.labs.every_lab import test_twenty

ROOT = Path(__file__).resolve().parents[2]
LECTURES = sorted(path.stem for path in ROOT.glob("lectures/*.ipynb") if not path.stem.startswith("00"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
START = nbformat.read(ROOT / "lectures" / "00_start_here.ipynb", as_version=4)
START_TEXT = "\n".join(cell.source for cell in START.cells if cell.cell_type == "markdown")
LISTED = [name for name in labs.names() if not labs.find(name).draft]
NUMBERS = (
    *("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen"),
)


def _linked(text: str, folder: str) -> list[str]:
    """Notebooks that the tables of a page link to, by their names."""
    rows = [line for line in text.splitlines() if line.startswith("|")]
    return re.findall(rf"\({folder}(\w+)\.ipynb\)", "\n".join(rows))


def test_the_tables_of_labs_have_every_lab_once() -> None:
    assert sorted(_linked(README, r"labs/\w+/")) == sorted(_linked(START_TEXT, r"\.\./labs/\w+/")) == LISTED


def test_the_tables_of_lectures_have_every_lecture_in_order() -> None:
    assert _linked(README, "lectures/") == _linked(START_TEXT, "") == LECTURES


def test_the_first_paragraphs_of_readme_count_them() -> None:
    counted = re.search(r"(\w+) lectures and (\w+) labs", README)
    assert counted and (counted[1].lower(), counted[2]) == (NUMBERS[len(LECTURES) - 1], NUMBERS[len(LISTED) - 1])


def test_every_lab_has_another_right_answer_that_is_graded_twenty_times() -> None:
    assert [labs.find(name).name for name in test_twenty.ANSWERS] == LISTED


def test_every_lab_that_uses_the_device_is_graded_on_a_gpu() -> None:
    """The others are about the host's side, a trace of the stand-in, builds without a GPU, or a network of the learner."""
    others = {"lab10_profiling", "lab09_runtime", "lab03_tuning", "lab11_torch_tensorrt", "lab16_your_network"}
    assert {labs.find(name).name for name in graded_on_a_gpu.LABS} | others == set(LISTED)


@pytest.mark.parametrize("name", labs.names())
def test_a_lab_has_one_number(name: str) -> None:
    """Its package, its module and its notebook say the same."""
    number, package = name[3:5], ROOT / "course_lib" / "labs" / name
    said = [(package / file).read_text().splitlines()[0] for file in ("__init__.py", "lab.py")]
    said.append(nbformat.read(ROOT / "solutions" / name / f"{name}.ipynb", as_version=4).cells[0].source.splitlines()[0])
    assert [re.findall(r"\bLab (\d+)\b", line) for line in said] == [[number]] * 3


def test_solutions_labs_and_packages_are_the_same_folders() -> None:
    folders = [sorted(path.name for path in (ROOT / kind).glob("lab*") if path.is_dir()) for kind in ("labs", "solutions")]
    assert folders == [list(labs.names())] * 2
