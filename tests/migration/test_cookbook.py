"""The cookbook's page: every rule is in it, with a fate that the bindings confirm."""

import re

import pytest

from course_lib.migration import ApiTable
from course_lib.migration.rules import torch_trt
from course_lib.migration.rules.data import RULES
from docs import cookbook


@pytest.fixture(scope="module")
def text() -> str:
    return cookbook.page({2: "../lectures/02.ipynb"})


def rows(text: str, heading: str) -> list[list[str]]:
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in section.splitlines() if line.startswith("| ")][1:]


def test_every_name_that_a_rule_gives_in_full_has_a_row(text: str) -> None:
    shown = set(re.findall(r"`([\w.]+)`", text))
    assert {name for rule in RULES for name in rule.names if "*" not in name} - shown == set()


def test_what_the_page_calls_removed_is_not_in_the_newest_version(text: str) -> None:
    newest, older = ApiTable.load("11.4"), [ApiTable.load(version) for version in ("8.6.1", "10.15", "10.16", "11.0")]
    removed = [
        name for cells in rows(text, "Python") if "removed 1" in cells[1] for name in re.findall(r"`([\w.]+)`", cells[0])
    ]
    assert len(removed) > 150
    for name in removed:
        assert not newest.has(name) and any(table.has(name) for table in older), name


def test_all_rows_are_whole_and_lectures_are_linked(text: str) -> None:
    for heading, columns in (("Python", 4), ("Torch-TensorRT", 2), ("Command lines and packages", 5)):
        found = rows(text, heading)
        assert found and all(len(cells) == columns and all(cell.strip() for cell in cells) for cells in found), heading
    assert "| [2](../lectures/02.ipynb) |" in text and "| 10 |" in text
    assert len(rows(text, "Torch-TensorRT")) == len(torch_trt.INSTEAD)
