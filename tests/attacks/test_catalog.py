"""The catalog is whole: each submission can be made and read about."""

from __future__ import annotations

import importlib
from pathlib import Path

import nbformat

from tests.attacks.catalog import attacks

ROOT = Path(__file__).resolve().parents[2]


def test_each_submission_can_be_made_and_read_about():
    for attack in attacks():
        assert bool(attack.cell) != bool(attack.make), attack.name
        assert len(attack.story) > 10 < len(attack.blocked_by)
        module, _, function = attack.make.partition(".")
        assert not attack.make or callable(getattr(importlib.import_module(f"tests.attacks.{module}"), function))


def cheats(text: str) -> list[str]:
    """The first column of the table of cheats."""
    table = text.split("| cheat | what it does | what stops it |\n|---|---|---|\n")[1].split("\n\n")[0]
    return [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]


def test_the_threat_model_and_the_lecture_have_the_same_twelve_cheats():
    notebook = nbformat.read(ROOT / "lectures" / "11_benchmarking.ipynb", as_version=4)
    (cell,) = [cell.source for cell in notebook.cells if cell.id == "cheats"]
    named = cheats((ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8"))
    assert cheats(cell + "\n\n") == named and len(named) == 12
