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
    parcel.unpack(parcel.pack(source).content, target)
    assert {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()} == {
        "a": b"\x00" * 10, "deep/er/ä b": b"x",
    }  # fmt: skip
    assert parcel.pack(source) == parcel.pack(source)
    parcel.unpack(parcel.pack(source, ("deep", "absent")).content, target)


def test_only_plain_files_travel(tmp_path):
    source, secret = tmp_path / "source", tmp_path / "secret"
    source.mkdir()
    secret.write_text("s")
    (source / "plain").write_text("p")
    (source / "link").symlink_to(secret)
    (source / "folder").symlink_to(tmp_path)
    os.link(secret, source / "hard")
    os.mkfifo(source / "pipe")
    assert names(parcel.pack(source)) == ["plain"]
    assert names(parcel.pack(source, ("link", "hard", "pipe", "plain"))) == ["plain"]
    whole = tmp_path / "link to it"
    whole.symlink_to(source)
    assert parcel.pack(tmp_path, ("absent",)) == parcel.pack(tmp_path / "nothing")


def test_what_is_too_much_is_left_out_and_named(tmp_path, monkeypatch):
    for name in "abcd":
        (tmp_path / name).write_bytes(b"1234")
    (tmp_path / "b").write_bytes(bytes(100))
    monkeypatch.setattr(parcel, "MOST_BYTES", 11)
    packed = parcel.pack(tmp_path, ("c", "."))
    assert names(packed) == ["c", "a"] and packed.left_out == ("b", "d")
    assert names(parcel.pack(tmp_path, times=100)) == ["a", "b", "c", "d"]
    monkeypatch.setattr(parcel, "MOST_BYTES", 1000)
    monkeypatch.setattr(parcel, "MOST_FILES", 3)
    assert parcel.pack(tmp_path).left_out == ("d",)


def names(packed: parcel.Parcel) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(packed.content)) as tar:
        return tar.getnames()


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
