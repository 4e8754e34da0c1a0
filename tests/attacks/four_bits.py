"""Makers of submissions for lab 11 that cheat: the other answer of the tests with one thing in it that a judge could overlook."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.attacks.scene import Scene
from tests.labs.submissions import lab11 as made


def decoy(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.decoy)


def correction(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.correction)


def codes_elsewhere(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.codes_elsewhere)


def table_of_text(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.table_of_text)


def _handed_in(folder: Path, cheat: made.Cheat) -> None:
    model = made.model(made.by_hand())
    cheat(model)
    onnx.save(model, folder / "decoder.onnx")
