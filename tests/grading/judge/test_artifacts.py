"""Files of a submission are taken as plain files or not at all."""

from __future__ import annotations

import os

import pytest

from course_lib.errors import CourseError
from course_lib.grading.judge.artifacts import drop_special_files, take


@pytest.fixture
def submission(tmp_path):
    folder = tmp_path / "submission"
    (folder / "sub").mkdir(parents=True)
    (folder / "good.onnx").write_bytes(b"model")
    (folder / "sub/notes.txt").write_text("notes")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder / "link.onnx").symlink_to(secret)
    (folder / "dangling.onnx").symlink_to(tmp_path / "nothing")
    (folder / "linked_folder").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.onnx")
    os.link(secret, folder / "hard.onnx")
    (folder / "folder.onnx").mkdir()
    return folder


def test_plain_file_is_taken(submission, tmp_path):
    take(submission / "good.onnx", tmp_path / "taken", max_bytes=5)
    assert (tmp_path / "taken").read_bytes() == b"model"


@pytest.mark.parametrize("name", ["link.onnx", "dangling.onnx", "pipe.onnx", "hard.onnx", "folder.onnx"])
@pytest.mark.timeout(10)
def test_anything_else_is_rejected_at_once(submission, tmp_path, name):
    with pytest.raises(CourseError, match="not a plain file"):
        take(submission / name, tmp_path / "taken", max_bytes=100)
    assert not (tmp_path / "taken").exists()


def test_missing_and_large_files_are_rejected(submission, tmp_path):
    with pytest.raises(CourseError, match="was not submitted"):
        take(submission / "none.onnx", tmp_path / "taken", max_bytes=100)
    with pytest.raises(CourseError, match="larger than 4 bytes"):
        take(submission / "good.onnx", tmp_path / "taken", max_bytes=4)


def test_dropping_removes_special_files_only(submission, tmp_path):
    dropped = drop_special_files(submission)
    assert sorted(dropped) == ["dangling.onnx", "hard.onnx", "link.onnx", "linked_folder", "pipe.onnx"]
    assert (tmp_path / "secret").read_text() == "secret"
    assert (submission / "good.onnx").exists() and (submission / "sub/notes.txt").exists()
