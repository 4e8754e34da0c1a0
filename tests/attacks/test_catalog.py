"""The catalog is whole: each submission can be made and read about, and the book shows every one of them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from course_lib import labs
from tests.attacks.catalog import PLACES, attacks, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how_benchmarks_are_gamed.md"


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
def test_submission_is_complete(attack):
    assert attack.where in PLACES
    assert sum(map(bool, (attack.cell, attack.make, attack.source, attack.folder))) == 1
    assert 10 < len(attack.story) < 160 and 10 < len(attack.blocked_by) < 160
    assert not re.search(r"[|\n]|\.$", attack.story + attack.blocked_by)  # a cell of a table
    if attack.make:
        module, _, function = attack.make.partition(".")
        assert callable(getattr(importlib.import_module(f"tests.attacks.{module}"), function))
    if attack.source:
        assert attack.file in labs.find(attack.lab).artifacts
    if attack.lab != "lab01":
        assert attack.task in {task.id for task in labs.find(attack.lab).tasks}


def test_no_maker_is_left_over():
    made = {attack.make for attack in attacks()}
    for module in ("notebooks", "files", "models", "engines", "other_labs"):
        text = Path(__file__).with_name(f"{module}.py").read_text()
        makers = re.findall(r"^(?:def )?([a-z]\w*)(?:\(folder: Path, scene: Scene\)| = _)", text, re.MULTILINE)
        assert makers and {f"{module}.{name}" for name in makers} <= made


def test_the_page_shows_them_all():
    asked = re.findall(r"<!-- submissions: (\w+) -->", PAGE.read_text(encoding="utf-8"))
    assert asked == list(PLACES)
    shown = "".join(map(table, asked))
    assert all(f"| {attack.name.replace('_', ' ')} |" in shown for attack in attacks())
