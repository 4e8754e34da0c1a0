"""Makers of submissions for lab 12 that cheat: right scores without the device, or a trace that is not what happened."""

from __future__ import annotations

from pathlib import Path

from tests.attacks.scene import Scene
from tests.labs.submissions import lab12 as made


def on_the_host(folder: Path, scene: Scene) -> None:
    made.write(folder, made.ON_THE_HOST)


def uploads_its_answers(folder: Path, scene: Scene) -> None:
    made.write(folder, made.UPLOADS_ITS_ANSWERS)


def drops_waits(folder: Path, scene: Scene) -> None:
    made.write(folder, made.DROPS_WAITS)


def forges_rows(folder: Path, scene: Scene) -> None:
    made.write(folder, made.FORGES_ROWS)


def answers_for_its_process(folder: Path, scene: Scene) -> None:
    made.write(folder, made.ANSWERS_FOR_ITS_PROCESS)


def reads_late(folder: Path, scene: Scene) -> None:
    made.write(folder, made.changed(made.READS_LATE))


def shares_its_answers(folder: Path, scene: Scene) -> None:
    made.write(folder, made.changed(made.SHARES_ITS_ANSWERS))


def adds_an_empty_row(folder: Path, scene: Scene) -> None:
    made.write(folder, made.ADDS_AN_EMPTY_ROW)
