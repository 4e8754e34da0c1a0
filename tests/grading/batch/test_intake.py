"""The input of grading: ids, times and names of files that people and systems write, and those that something cannot hold."""

from __future__ import annotations

import os
import re
import unicodedata
from datetime import datetime, timezone
from pathlib import Path

import pytest

from course_lib.grading.batch.archive import Selection
from course_lib.grading.batch.intake import id_problem, read_time, submission_time
from tests.grading.conftest import LAB


@pytest.mark.parametrize(
    "name",
    ["ada.lovelace", "zoë müller", "学生", "o'brien", "x+y@example.org", "_9", "Ольга-2", "n" * 100, "नमस्ते", "דוד-12", "ผู้ใหญ่"],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])  # a system of Apple may store the second one
def test_honest_ids(name, form):
    assert id_problem(unicodedata.normalize(form, name)) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\u00a0b", "U+00A0 (no-break space)"),
        ("a\nb", "U+000A (a control character)"),
        ("a\u200bb", "U+200B (zero width space)"),
        ("\udcff\udcfe", "not UTF-8"),
        ("n" * 240, "240 characters"),
        ("学" * 80, "80 characters in 240 bytes"),
        ("a[1]", 'contains "["'),
        ("*", 'contains "*"'),
        ("a/b", 'contains "/"'),
        ('"', "a quotation mark"),
        ("=cmd()", 'contains "="'),
        ("lab01_first_engine.html", "ends with .html"),
        ("--force", 'begins with "-"'),
        (".ipynb_checkpoints", 'begins with "."'),
        ("\u0301a", "begins with U+0301"),
        ("a ", "a space or a dot at its end"),
        ("a  b", "two spaces"),
        ("", "0 characters"),
    ],
)
def test_ids_that_something_cannot_hold(name, said):
    reason = id_problem(name)
    assert said in reason and reason.isascii() and reason.isprintable() and len(reason) < 140


# ---- times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-02 18:00:00 UTC", (18, 0, 0, 0)),
        ("2026-05-02 18:00:00.123456 UTC\n", (18, 0, 0, 123456)),
        ("2026-05-02T18:00Z", (18, 0, 0, 0)),
        ("2026-05-02 18:00:00", (18, 0, 0, 0)),
        ("2026-05-02 20:00:00 +0200", (18, 0, 0, 0)),
        ("2026-05-02T12:30:00-05:30", (18, 0, 0, 0)),
        ("2026-05-02 20:00:00.5 Europe/Zurich", (18, 0, 0, 500000)),
        ("\ufeff 2026-05-02 18:00:00 GMT\r\n", (18, 0, 0, 0)),
    ],
)
def test_times_as_the_exchange_and_iso_8601_write_them(text, expected):
    hour, minute, second, microsecond = expected
    assert read_time(text.encode()) == datetime(2026, 5, 2, hour, minute, second, microsecond, timezone.utc)


@pytest.mark.parametrize(
    "text",
    [
        *("", "yesterday", "2026-05-02", "2026-02-31 00:00:00", "0001-01-01 00:00:00 +14:00", "9" * 1_000_000),
        *("2026-05-02 18:00:00 XYZ", "2026-05-02 18:00:00 Europe", "2026-05-02 18:00:00 +99:99", "2026-05-02 18:00:00 UTC\x00"),
    ],
)
def test_what_is_no_time(text, tmp_path):
    with pytest.raises(ValueError):
        read_time(text.encode())
    (tmp_path / "timestamp.txt").write_text(text)
    time, problem = submission_time(tmp_path)
    assert time is None and "timestamp.txt holds no time" in problem


def test_a_time_that_is_no_file(tmp_path):
    (tmp_path / "timestamp.txt").mkdir()
    time, problem = submission_time(tmp_path)
    assert time is None and "it is not a text file" in problem


# ---- files


def test_a_file_whose_name_is_no_text_is_left_out_and_named(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in (b"kept", b"no text \xff", b"two\nlines", b"n" * 201):
        Path(os.fsdecode(os.fsencode(source) + b"/" + name)).write_text("x")
    _, left_out = Selection(source).look()
    Selection(source).copy_to(target)
    assert [path.name for path in target.iterdir()] == ["kept"]
    assert len(left_out) == 3 and all(re.fullmatch(r"[ -~]+", name) for name in left_out)


def test_an_id_that_is_rejected_is_never_graded(tmp_path, monkeypatch):
    from course_lib.grading.batch.classroom import Classroom

    room = Classroom(tmp_path)
    monkeypatch.setattr("course_lib.grading.isolation.sandbox.require", lambda: None)
    monkeypatch.setattr(Classroom, "_registered", lambda *_: Selection(tmp_path / "nothing"))
    grades = room.grade(LAB, ["a[1]", "\udcff"])
    assert [one.score for one in grades] == [0, 0] and [one.error for one in grades] == [
        id_problem("a[1]"),
        id_problem("\udcff"),
    ]
    assert not (room.folder / "reports").exists()
