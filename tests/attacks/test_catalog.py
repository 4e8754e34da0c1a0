"""The catalog is whole: each submission can be made and read about."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import nbformat
import pytest

from tests.attacks.catalog import attacks

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
def test_submission_is_complete(attack):
    assert sum(map(bool, (attack.cell, attack.make, attack.folder))) == 1
    assert 10 < len(attack.story) < 160 and 10 < len(attack.blocked_by) < 160
    assert not re.search(r"[|\n]|\.$", attack.story + attack.blocked_by)  # a cell of a table
    if attack.make:
        module, _, function = attack.make.partition(".")
        assert callable(getattr(importlib.import_module(f"tests.attacks.{module}"), function))


def test_no_maker_is_left_over():
    made = {attack.make for attack in attacks()} | {"engines.random_weights"}  # the scene's control
    for module in ("notebooks", "models", "engines"):
        text = Path(__file__).with_name(f"{module}.py").read_text()
        makers = re.findall(r"^(?:def )?([a-z]\w*)(?:\(folder: Path, scene: Scene\)| = _)", text, re.MULTILINE)
        assert makers and {f"{module}.{name}" for name in makers} <= made


def cheats(text: str) -> list[str]:
    """The first column of the table of cheats."""
    table = text.split("| cheat | what it does | what stops it |\n|---|---|---|\n")[1].split("\n\n")[0]
    return [row.split(" | ")[0].removeprefix("| ") for row in table.splitlines()]


def test_the_threat_model_and_the_lecture_have_the_same_twelve_cheats():
    notebook = nbformat.read(ROOT / "lectures" / "11_benchmarking.ipynb", as_version=4)
    (cell,) = [cell.source for cell in notebook.cells if cell.id == "cheats"]
    named = cheats((ROOT / "docs" / "threat_model.md").read_text(encoding="utf-8"))
    assert cheats(cell + "\n\n") == named and len(named) == 12
