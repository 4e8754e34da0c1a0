"""Makers of decoders for lab 10 that cheat: each is a graph with one thing in it that a judge could overlook."""

from __future__ import annotations

from pathlib import Path

import onnx

from tests.attacks.scene import Scene
from tests.labs.submissions import lab10 as made


def table_of_answers(folder: Path, scene: Scene) -> None:
    onnx.save(made.table_of_answers(), folder / "decoder.onnx")


def end_of_a_prompt(folder: Path, scene: Scene) -> None:
    onnx.save(made.Parts(mask=made.window(150)).graph(), folder / "decoder.onnx")


def branch_on_position(folder: Path, scene: Scene) -> None:
    onnx.save(made.branch_on_position(), folder / "decoder.onnx")


def note_in_the_cache(folder: Path, scene: Scene) -> None:
    onnx.save(made.Parts(write=made.hides_state).graph(), folder / "decoder.onnx")


def decoys_beside_sums(folder: Path, scene: Scene) -> None:
    onnx.save(made.Parts(attend=made.by_sums).graph(), folder / "decoder.onnx")


def decoys_beside_gemm(folder: Path, scene: Scene) -> None:
    onnx.save(made.Parts(attend=made.by_gemm).graph(), folder / "decoder.onnx")


def decoys(folder: Path, scene: Scene) -> None:
    onnx.save(made.Parts(attend=made.decoys).graph(), folder / "decoder.onnx")


def numbers_beyond_float32(folder: Path, scene: Scene) -> None:
    onnx.save(made.beyond_float32(), folder / "decoder.onnx")
