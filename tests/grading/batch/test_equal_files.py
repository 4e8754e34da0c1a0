"""Equal files are judged once in a batch: equal points, and a class is done sooner."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.errors import WORKER_ENDED, WorkerDied
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Examination, Examiner
from tests.grading.conftest import LAB, new_course, submit


@pytest.fixture
def examined(monkeypatch) -> list[bytes]:
    """What was examined, by the first file's content. Every examination fails all tasks by a wrong engine."""
    seen: list[bytes] = []

    def examine(lab, folder, examiner, only=None):
        seen.append(Path(folder, "recipe.toml").read_bytes() if Path(folder, "recipe.toml").is_file() else b"")
        return Examination(lab.zero_outcomes("wrong"))

    monkeypatch.setattr(type(LAB), "examine", examine)
    return seen


def handed_in(folder: Path, content: bytes) -> Path:
    folder.mkdir()
    (folder / "recipe.toml").write_bytes(content)
    return folder


def test_only_equal_files_share_a_verdict(tmp_path, examined):
    known: dict[str, Verdict] = {}
    folders = [handed_in(tmp_path / name, content) for name, content in (("ada", b"1"), ("ben", b"2"), ("cay", b"1"))]
    ada, ben, cay = (judge(LAB, folder, trusted=True, known=known) for folder in folders)
    assert examined == [b"1", b"2"]
    assert cay.provenance == {**ada.provenance, "judged_once": "for equal files of this batch"} != ben.provenance
    assert (cay.outcomes, cay.score) == (ada.outcomes, ada.score)


def test_another_examiner_judges_again(tmp_path, examined):
    known: dict[str, Verdict] = {}
    folder = handed_in(tmp_path / "ada", b"1")
    for examiner in (Examiner(runner="onnxruntime"), Examiner(runner="openvino")):
        judge(LAB, folder, trusted=True, examiner=examiner, known=known)
    assert len(examined) == 2


@pytest.mark.parametrize("reason", ["inconclusive", "a process that ended"])
def test_what_another_examination_may_decide_is_judged_again(tmp_path, monkeypatch, reason):
    examinations = 0

    def examine(lab, folder, examiner, only=None):
        nonlocal examinations
        examinations += 1
        if reason != "inconclusive":
            return Examination(lab.zero_outcomes(WorkerDied("gone", code=WORKER_ENDED)))
        return Examination(tuple(lab.outcome(task.id, "inconclusive", "the machine is busy") for task in lab.tasks))

    monkeypatch.setattr(type(LAB), "examine", examine)
    known: dict[str, Verdict] = {}
    folder = handed_in(tmp_path / "ada", b"1")
    judge(LAB, folder, trusted=True, known=known)
    first = examinations
    judge(LAB, folder, trusted=True, known=known)
    assert known == {} and examinations == 2 * first


def test_a_batch_remembers_and_the_next_one_does_not(tmp_path, examined):
    """In a whole batch: two equal submissions, and anew in the next batch."""
    room = Classroom(new_course(tmp_path), trusted=True)
    for student, content in (("ada", b"1"), ("ben", b"1")):
        folder = submit(room, student)
        (folder / f"{LAB.name}.ipynb").write_text('{"cells": [{"cell_type": "markdown", "source": "no code"}]}')
        (folder / "recipe.toml").write_bytes(content)
    for batch in (1, 2):
        grades = room.grade(LAB, ["ada", "ben"])
        assert [grade.error for grade in grades] == ["", ""]
        assert examined == [b"1"] * batch
    verdicts = [room.verdict(LAB, student) for student in ("ada", "ben")]
    assert ["judged_once" in one.provenance for one in verdicts if one] == [False, True]
