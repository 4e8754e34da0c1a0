"""Folders on their way: only plain files, and only into their own folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from course_lib.grading.batch import archive
from course_lib.grading.batch.archive import Selection


@pytest.fixture(params=["copied", "packed"])
def copy(request):
    """Both ways of a selection to another folder."""
    return Selection.copy_to if request.param == "copied" else lambda files, target: files.packed.copy_to(target)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_are_the_same_there(tmp_path, copy):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "a").write_bytes(b"\x00" * 10)
    (source / "deep/er/ä b").write_text("x")
    target.mkdir()
    (target / "a").write_text("old")
    copy(Selection(source), target)
    assert content(target) == {"a": b"\x00" * 10, "deep/er/ä b": b"x"}
    assert Selection(source).packed == Selection(source).packed
    assert Selection(source).look() == Selection(target).look() != Selection(target, ("a",)).look()
    copy(Selection(source, ("deep", "absent")), target)
    assert len(content(target)) == 2


def test_only_plain_files_travel(tmp_path, copy):
    source, secret = tmp_path / "source", tmp_path / "secret"
    source.mkdir()
    secret.write_text("s")
    (source / "plain").write_text("p")
    (source / "link").symlink_to(secret)
    (source / "folder").symlink_to(tmp_path)
    os.link(secret, source / "hard")
    os.mkfifo(source / "pipe")
    for names in ((".",), ("link", "hard", "pipe", "plain")):
        target = tmp_path / "target" / str(len(names))
        copy(Selection(source, names), target)
        assert content(target) == {"plain": b"p"}
    whole = tmp_path / "link to it"
    whole.symlink_to(source)
    assert Selection(tmp_path, ("absent",)).look() == Selection(tmp_path / "nothing").look()


def test_what_is_too_much_is_left_out_and_named(tmp_path, monkeypatch, copy):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in "abcd":
        (source / name).write_bytes(b"1234")
    (source / "b").write_bytes(bytes(100))
    monkeypatch.setattr(archive, "MOST_BYTES", 11)
    copy(Selection(source, ("c", ".")), target)
    assert content(target).keys() == {"a", "c"} and Selection(source, ("c", ".")).look()[1] == ("'b'", "'d'")
    assert Selection(source, times=100).look()[1] == ()
    monkeypatch.setattr(archive, "MOST_BYTES", 1000)
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    assert Selection(source).look()[1] == ("'d'",)


def test_files_that_are_asked_for_come_first_and_the_others_have_a_limit_together(tmp_path, monkeypatch, copy):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "model").mkdir(parents=True)
    (source / "model" / "in a folder").write_bytes(b"m" * 60)
    (source / "asked").write_bytes(b"a" * 90)
    (source / "other").write_bytes(b"o" * 20)
    monkeypatch.setattr(archive, "MOST_BYTES", 120)
    files = Selection(source, ("asked", "model", "."), others=50)
    copy(files, target)
    assert content(target).keys() == {"asked", "other"} and files.look()[1] == ("'model/in a folder'",)
