"""Folders on their way: only plain files, and only into their own folder."""

from __future__ import annotations

import io
import os
import tarfile

import pytest

from course_lib.errors import CourseError
from course_lib.grading import parcel


def test_there_and_back(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "a").write_bytes(b"\x00" * 10)
    (source / "deep/er/ä b").write_text("x")
    target.mkdir()
    (target / "a").write_text("old")
    parcel.unpack(parcel.pack(source), target)
    assert {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()} == {
        "a": b"\x00" * 10, "deep/er/ä b": b"x",
    }  # fmt: skip
    assert parcel.pack(source) == parcel.pack(source)
    parcel.unpack(parcel.pack(source, ("deep", "absent"), without=("ä b",)), target)


def test_only_plain_files_travel(tmp_path):
    source, secret = tmp_path / "source", tmp_path / "secret"
    source.mkdir()
    secret.write_text("s")
    (source / "plain").write_text("p")
    (source / "link").symlink_to(secret)
    (source / "folder").symlink_to(tmp_path)
    os.link(secret, source / "hard")
    os.mkfifo(source / "pipe")
    with tarfile.open(fileobj=io.BytesIO(parcel.pack(source))) as tar:
        assert tar.getnames() == ["plain"]
    whole = tmp_path / "link to it"
    whole.symlink_to(source)
    assert parcel.pack(tmp_path, ("absent",)) == parcel.pack(tmp_path / "nothing")


def test_limits(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / name).write_bytes(b"1234")
    monkeypatch.setattr(parcel, "MOST_FILES", 2)
    with pytest.raises(CourseError, match="or 2 files"):
        parcel.pack(tmp_path)
    monkeypatch.setattr(parcel, "MOST_FILES", 3)
    monkeypatch.setattr(parcel, "MOST_BYTES", 11)
    with pytest.raises(CourseError, match="holds more than"):
        parcel.pack(tmp_path)


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "../out"},
        {"name": "/abs"},
        {"name": "a/../../out"},
        {"name": "l", "type": tarfile.SYMTYPE, "linkname": "/etc"},
        {"name": "h", "type": tarfile.LNKTYPE, "linkname": "x"},
        {"name": "d", "type": tarfile.DIRTYPE},
        {"name": "f", "type": tarfile.FIFOTYPE},
    ],
)
def test_a_parcel_of_another_make_is_refused(tmp_path, entry):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        info = tarfile.TarInfo(entry["name"])
        for key, value in entry.items():
            setattr(info, key, value)
        tar.addfile(info)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(CourseError, match="no plain file of its own folder"):
        parcel.unpack(archive.getvalue(), inside)
    assert list(tmp_path.iterdir()) == [inside] and list(inside.iterdir()) == []
