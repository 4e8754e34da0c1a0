"""Each learner's own instance: where the id comes from, and that it travels in the answer file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.errors import EngineError, NotExamined
from course_lib.labs import Examiner, find
from course_lib.labs.framework import submission


@pytest.fixture(autouse=True)
def no_id(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in submission.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def drawn(learner: str, subject: str = "lab02") -> list[int]:
    return submission.rng(learner, subject).integers(0, 1000, 8).tolist()


def test_an_instance_follows_from_id_and_subject_on_every_machine() -> None:
    assert drawn("ada") == [753, 389, 388, 41, 435, 554, 99, 671], "the same on every machine"
    assert drawn("ada") == drawn(" ADA ") != drawn("ben")
    assert drawn("ada", "lab10") != drawn("ada")


def test_the_id_is_the_named_one_then_the_files_then_the_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "answers.json"
    own = submission.begin(file)
    assert own == submission.begin(tmp_path / "other.json") and own.startswith("machine-"), "drawn once for the machine"
    monkeypatch.setenv("JUPYTERHUB_USER", "hub")
    assert submission.begin(tmp_path / "third.json") == "hub"
    assert submission.begin(file) == own, "work that has begun keeps its instance, also on the grader's machine"
    assert submission.begin(file, "ada ") == "ada" == submission.learner_in(file)


def test_answers_in_the_file_stay(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    submission.write(file, "ada", costs={"head": 1})
    submission.begin(file, "ben")
    assert json.loads(file.read_text()) == {"learner": "ben", "costs": {"head": 1}}


@pytest.mark.parametrize("text", ["", "[]", "[" * 60_000, '{"learner": 7}', '{"learner": ["ada"]}', '{"costs": {}}'])
def test_a_file_without_an_id_costs_nobody_a_point(tmp_path: Path, text: str) -> None:
    (tmp_path / "learner.json").write_text(text)
    with find("lab14").work(tmp_path, Examiner()) as work, pytest.raises(NotExamined, match="has no key `learner`"):
        assert work.learner


def test_a_lost_answer_file_beside_other_work_is_the_instructors(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with find("lab02").work(tmp_path, Examiner()) as work, pytest.raises(NotExamined, match=r"causes\.json is missing"):
        assert work.learner
    (tmp_path / "model.onnx").unlink()
    with find("lab02").work(tmp_path, Examiner()) as work, pytest.raises(EngineError, match=r"causes\.json is missing"):
        assert work.learner


def test_a_machine_that_keeps_nothing_still_has_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert submission.begin(tmp_path / "answers.json").startswith("machine-")
