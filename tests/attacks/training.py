"""Makers of submissions for lab 13 that cheat: the reference's graph with something in it that a judge could overlook."""

from __future__ import annotations

from pathlib import Path

import onnx

from course_lib.labs.lab13_qat.graph_file import MODEL
from tests.attacks.scene import Scene
from tests.labs.submissions import lab13 as made


def float_path(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.float_path_beside_decoys)


def idle_pairs(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.scales_that_do_nothing)


def table_of_labels(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.table_of_labels)


def sixteen_bits(folder: Path, scene: Scene) -> None:
    _handed_in(folder, made.finer_steps)


def stored_numbers(folder: Path, scene: Scene) -> None:
    (folder / "qat.py").write_text(made.with_stored_numbers())


def _handed_in(folder: Path, cheat: made.Cheat) -> None:
    model = onnx.load(folder / MODEL)
    cheat(model)
    onnx.save(model, folder / MODEL)
