"""Notebooks as tools, uploads and people change them: the learner's text is kept, and a lost answer stays open for a person."""

from __future__ import annotations

import copy
import json
from typing import Any

import nbformat
import pytest

from course_lib.grading.batch.notebook_reader import read
from tests.grading.conftest import LAB, ROOT

RELEASED = json.loads((ROOT / "labs" / LAB.name / f"{LAB.name}.ipynb").read_bytes())
ANSWER = "Because the batch is almost always 1."
LOST = "The answer to this question was not found"


def is_answer(cell: dict[str, Any]) -> bool:
    return bool(cell["metadata"].get("nbgrader", {}).get("grade_id") == "written")


def solved() -> dict[str, Any]:
    notebook = copy.deepcopy(RELEASED)
    next(filter(is_answer, notebook["cells"]))["source"] = ANSWER
    return notebook


def packed(notebook: dict[str, Any]) -> bytes:
    return json.dumps(notebook, ensure_ascii=False).encode()


def changed(**changes: Any) -> bytes:
    return packed({**solved(), **changes})


def with_cells(change: Any) -> bytes:
    notebook = solved()
    change(notebook["cells"])
    return packed(notebook)


def answer_of(content: bytes) -> tuple[str, str]:
    """The written answer that a person reads, and what could not be read."""
    notebook, problem = read(content, copy.deepcopy(RELEASED))
    nbformat.validate(nbformat.reads(json.dumps(notebook), as_version=4))
    (answer,) = filter(is_answer, notebook["cells"])
    released = {
        cell["metadata"]["nbgrader"]["grade_id"]: cell["metadata"]
        for cell in RELEASED["cells"]
        if "nbgrader" in cell["metadata"]
    }
    for cell in notebook["cells"]:
        if marks := cell["metadata"].get("nbgrader"):
            assert cell["metadata"] == released[marks["grade_id"]], "nbgrader's metadata is the release's"
    return "".join(answer["source"]), problem


def duplicate(cells: list[Any]) -> None:
    for index in (3, len(cells) - 2):
        cells.insert(index, copy.deepcopy(cells[index]))


def unanswered_first(cells: list[Any]) -> None:
    cells.insert(0, copy.deepcopy(next(filter(is_answer, RELEASED["cells"]))))


def as_code(cells: list[Any]) -> None:
    next(filter(is_answer, cells)).update(cell_type="code", outputs=[], execution_count=None)


def forge(cells: list[Any]) -> None:
    next(filter(is_answer, cells))["metadata"]["nbgrader"].update(points=1000, locked=True, schema_version=1)


def without_metadata(cells: list[Any]) -> None:
    for cell in cells:
        if "nbgrader" not in cell["metadata"]:
            del cell["metadata"]


@pytest.mark.parametrize(
    "content",
    [
        changed(nbformat_minor=4),
        changed(metadata={"widgets": {"application/vnd.jupyter.widget-state+json": {"abc": {}}}}),
        changed(metadata={"language_info": {}, "kernelspec": 3}),
        b"\xef\xbb\xbf" + packed(solved()),
        packed(solved()).decode().encode("utf-16"),
        with_cells(duplicate),
        with_cells(unanswered_first),
        with_cells(as_code),
        with_cells(forge),
        with_cells(without_metadata),
        with_cells(lambda cells: cells[1].update(outputs="gone", attachments=7)),
        with_cells(lambda cells: cells.append("not a cell")),
    ],
    ids=["4.4 with ids", "widgets", "metadata", "mark", "UTF-16", "copied cells", "answered in a copy", "as code", "forged", "no metadata",
         "odd fields", "odd cell"],
)  # fmt: skip
def test_what_a_tool_did_to_a_notebook_costs_no_answer(content):
    assert answer_of(content) == (ANSWER, "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "JSONDecodeError"),
        (packed(solved())[:-1500], "JSONDecodeError"),
        (b"<html>Sign in to download</html>", "JSONDecodeError"),
        (packed({"nbformat": 4, "cells": []}), "it has no cells"),
        (packed([1, 2]), "AttributeError"),  # type: ignore[arg-type]
        (packed({**RELEASED, "cells": [{"cell_type": "markdown", "source": "[" * 60_000}]}), "60,000 brackets"),
        (b"[" * 100_000, "RecursionError"),
    ],
)
def test_an_answer_that_cannot_be_read_stays_open(content, reason):
    answer, problem = answer_of(content)
    assert answer.startswith(LOST) and reason in problem and reason in answer


def test_a_deleted_answer_cell_stays_open():
    content = with_cells(lambda cells: cells.remove(next(filter(is_answer, cells))))
    answer, problem = answer_of(content)
    assert answer.startswith(LOST) and problem == ""


def test_an_unanswered_question_stays_the_released_text():
    assert answer_of(packed(RELEASED))[0] == "".join(next(filter(is_answer, RELEASED["cells"]))["source"])
