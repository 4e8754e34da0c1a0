"""The door of grading: thousands of hostile ids, names of files and times, and what remains is safe for everything behind it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import unicodedata
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib.grading.batch import intake
from course_lib.grading.batch.archive import DEEPEST, Selection
from course_lib.grading.batch.collection import collected
from course_lib.grading.batch.intake import Intake, file_name_problem, id_problem, read_time, shown, submission_time
from course_lib.grading.batch.journal import Journal
from course_lib.grading.reports import attention
from tests.grading.conftest import LAB
from tests.grading.hostile import below, ids, names_of_files

SEED = 21


@pytest.mark.parametrize(
    "name",
    [
        "ada",
        "ada.lovelace",
        "zoë müller",
        "学生",
        "o'brien",
        "x+y@example.org",
        "_9",
        "Ольга-2",
        "n" * 100,
        "नमस्ते",
        "a-b_c.d",
        "דוד-12",
        "ليلى.3",
        "ผู้ใหญ่",
    ],
)
def test_honest_ids(name):
    assert id_problem(unicodedata.normalize("NFC", name)) == ""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\u00a0b", "U+00A0 (no-break space)"),
        ("a\nb", "U+000A (a control character)"),
        ("\x1b[2Ja", "U+001B"),
        ("a\u202eb", "U+202E (right-to-left override)"),
        ("a\u200bb", "U+200B (zero width space)"),
        ("\udcff\udcfe", "not UTF-8"),
        ("n" * 240, "240 characters"),
        ("ü" * 101, "101 characters"),
        ("学" * 80, "80 characters in 240 bytes"),
        ("a[1]", 'contains "["'),
        ("*", 'contains "*"'),
        ("{student_id}", 'contains "{"'),
        ("a/b", 'contains "/"'),
        ('"', "a quotation mark"),
        ("=cmd()", 'contains "="'),
        ("\uff1dcmd", "U+FF1D"),
        ("lab01_first_engine.html", "ends with .html"),
        ("lab01_first_engine.leaderboard.HTML", "ends with .html"),
        ("--force", 'begins with "-"'),
        ("@SUM", 'begins with "@"'),
        (".ipynb_checkpoints", 'begins with "."'),
        ("..", 'begins with "."'),
        ("\u0301a", "begins with U+0301"),
        (" a", 'begins with " "'),
        ("a ", "a space or a dot at its end"),
        ("a  b", "two spaces"),
        ("\uff41da", "NFKC"),
        ("e\u0301", "NFKC"),
        ("a\u3164", "hangul filler"),
        ("a\u1160", "U+1160"),
        ("", "0 characters"),
    ],
)
def test_ids_that_something_cannot_hold(name, said):
    reason = id_problem(name)
    assert said in reason and reason.isascii() and reason.isprintable() and len(reason) < 140


def test_ids_that_differ_in_case_alone_need_the_instructor():
    assert Intake(("ADA", "ada", "ben", "Stra\u00dfe", "strasse")).twins == (("ADA", "ada"), ("Stra\u00dfe", "strasse"))
    assert Intake(("ada", "ida", "zo\u00eb", "zoe")).twins == ()
    nothing = {"to_review": (), "unlisted": {}, "submissions": (), "similar": (), "shared_instances": {}}
    (need,) = attention.to_review(SimpleNamespace(**nothing, twins=(("ADA", "ada"),)))
    assert need.named == "ADA, ada" and "differ in case" in need.why and need.open == 0


def test_what_passes_the_door_is_safe_behind_it(tmp_path):
    """A thousand ids that are made to break something: each is rejected with one line, or every use of an id holds it."""
    passed = 0
    for name in ids(random.Random(SEED), 1000):
        if reason := id_problem(name):
            assert re.fullmatch(r"[ -~]{10,140}", reason), ascii(name)
            assert re.fullmatch(r"[ -~]{2,60}", shown(name)), ascii(name)
            continue
        passed += 1
        assert name == name.strip() and "/" not in name and name[0] not in "=+-@.\t\r"
        assert not re.search(r"[\[\]*?{}<>&\"`$\\|;,]", name) and not re.search("[\ud800-\udfff]", name)
        assert len(list(name.splitlines())) == 1 and below(tmp_path, name)
        journal = Journal(tmp_path)
        journal._write(journal._mark(name), b"[]")  # a name as long as any that is written
        assert (tmp_path / f"{name}.recorded").is_file()
        (tmp_path / f"{name}.recorded").unlink()
    assert passed > 50, "the generator makes honest names as well"


def test_a_thousand_folders_are_collected(tmp_path):
    made = set()
    for name in ids(random.Random(SEED), 1000):
        folder = below(tmp_path, name)
        if folder and "/" not in name and name != ".ipynb_checkpoints":  # a folder of Jupyter's is not a learner's
            with contextlib.suppress(OSError, ValueError):  # such as a name that is too long for the file system
                (folder / LAB.name).mkdir(parents=True, exist_ok=True)
                made.add(name)
    found = collected(tmp_path, LAB.name)
    assert set(found.students) == {name for name in made if not id_problem(name)}
    assert sorted(one.shown for one in found.rejected) == sorted(shown(name) for name in made if id_problem(name))
    assert found.students == tuple(sorted(found.students, key=os.fsencode)) and len(found.rejected) > 100
    assert all(re.fullmatch(r"[ -~]+", str(one)) for one in found.rejected)


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
        "",
        "yesterday",
        "2026-05-02",
        "2026-02-31 00:00:00",
        "0001-01-01 00:00:00 +14:00",
        "9999-12-31 23:59:59 -14:00",
        "2026-05-02 18:00:00 XYZ",
        "2026-05-02 18:00:00 Europe",
        "2026-05-02 18:00:00 right/UTC",
        "2026-05-02 18:00:00 localtime",
        "2026-05-02 18:00:00 ../../../etc/passwd",
        "2026-05-02 18:00:00 +99:99",
        "2026-05-02 18:00:00 UTC" + " " * 100 + "x",
        "٢٠٢٦-05-02 18:00:00",
        "9" * 1_000_000,
        "2026-05-02 18:00:00 UTC\x00",
    ],
)
def test_what_is_no_time(text, tmp_path):
    with pytest.raises(ValueError):
        read_time(text.encode())
    (tmp_path / "timestamp.txt").write_text(text)
    time, problem = submission_time(tmp_path)
    assert time is None and "timestamp.txt holds no time" in problem


@pytest.mark.parametrize("kind", ["a folder", "a folder with a file", "a link to itself"])
def test_a_time_that_is_no_file(tmp_path, kind):
    path = tmp_path / "timestamp.txt"
    if kind.startswith("a folder"):
        path.mkdir()
        if kind != "a folder":
            (path / "deeper").write_text("2026-05-02 18:00:00 UTC")
    else:
        path.symlink_to("timestamp.txt")
    time, problem = submission_time(tmp_path)
    assert time is None and "it is not a text file" in problem


# ---- files


def test_a_thousand_names_of_files(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    made = set()
    for name in names_of_files(random.Random(SEED), 1000):
        if path := below(source, name):
            with contextlib.suppress(OSError, ValueError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("x")
    for here, _, files in os.walk(source):
        names = {Path(here, name).relative_to(source).as_posix() for name in files}
        made |= {name for name in names if name.count("/") <= DEEPEST}
    _, left_out = Selection(source).look()
    Selection(source).copy_to(target)
    taken = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert taken == {name for name in made if not file_name_problem(name)} and len(taken) > 100
    assert len(left_out) == len(made - taken) > 100
    assert all(re.fullmatch(r"[ -~]+", name) for name in left_out)


def test_a_name_cannot_move_its_end_to_another_line():
    """Spaces up to the terminal's edge made a line of its own, such as that of another learner."""
    name = shown("a.txt" + 30 * " " + "[2/2] zoe: 12 of 12 points")
    assert "  " not in name and r"\x20\x20" in name and len(name) <= 60
    assert shown("a b") == "'a b'"


def test_files_that_no_lab_asks_for_have_a_limit_together(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"m" * 50)
    for number in range(3):
        (tmp_path / f"other{number}").write_bytes(b"o" * 20)
    chosen = Selection(tmp_path, ("model.onnx", "."), others=45)
    assert chosen.look()[1] == ("'other2'",)
    chosen.copy_to(tmp_path / "copy")
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["model.onnx", "other0", "other1"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_with_holes_takes_no_more_than_it_did(tmp_path, packed):
    size = 60_000_000
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with open(source / "model.onnx", "wb") as file:
        file.write(b"begin")
        file.truncate(size)
    files = Selection(source)
    (files.packed if packed else files).copy_to(target)
    status = (target / "model.onnx").stat()
    assert status.st_size == size and status.st_blocks * 512 < 1_000_000
    assert Selection(source).look() == Selection(target).look()


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


def test_there_is_one_parser_for_times():
    text = "".join(path.read_text() for path in Path(intake.__file__).parents[1].rglob("*.py"))
    assert not re.search(r"import.*dateutil|import.*parse_utc|strptime", text)
