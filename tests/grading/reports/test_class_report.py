"""A class read from its gradebook and verdicts, and the page made of it."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from nbgrader.api import Gradebook

from course_lib.cli import console
from course_lib.errors import CourseError
from course_lib.grading.batch.grade import note
from course_lib.grading.reports import attention, class_figures, class_page, leaderboard
from course_lib.grading.reports.class_files import ClassFiles, write
from course_lib.grading.reports.class_report import read
from tests.grading.classes import WRITTEN, class_of_30, faulty, new_room, put, verdict
from tests.grading.conftest import LAB


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    made = new_room(tmp_path_factory.mktemp("class"))
    class_of_30(made)
    return made


@pytest.fixture(scope="module")
def report(room):
    return read(LAB, room)


def test_points_are_those_of_the_gradebook(report):
    of = {one.student: one for one in report.submissions}
    assert len(of) == 30
    assert (of["full00"].score, of["full00"].max_score, of["full00"].judged) == (11, 12, 10)
    assert (of["part0"].score, of["part0"].penalty, of["part0"].final) == (9.5, 1.5, 8)
    assert [task.points for task in of["part3"].tasks] == [3, 1.5, 4]
    assert (of["none0"].final, of["none0"].speedup) == (0, None)


def test_difficulty_is_the_share_of_each_tier(report):
    shares = report.difficulty()
    accuracy, speed = shares[LAB.tasks[1].title], shares[LAB.tasks[2].title]
    assert {tier: round(30 * share) for tier, share in accuracy.items()} == {
        "full": 22, "partial": 4, "none": 3, "inconclusive": 0, "ungraded": 1,
    }  # fmt: skip
    assert round(30 * speed["inconclusive"]) == 1 and sum(speed.values()) == pytest.approx(1)


def test_every_student_leads_to_a_report(room, report):
    page = class_page.page(report)
    addresses = [value for name, value in Tags(page).attributes if name == "href"]
    assert {f"{one.student}/{LAB.name}.html" for one in report.submissions} == set(addresses)
    assert all((room.folder / "reports" / unquote(address)).with_suffix(".json").is_file() for address in addresses)
    headings = re.findall(r"<h\d>(.*?)</h\d>", page)
    assert len(headings) == len(set(headings)) and "None." not in page


def test_a_class_without_trouble_has_no_empty_sections(tmp_path):
    room = new_room(tmp_path)
    put(room, "ada #1", verdict())
    page = class_page.page(read(LAB, room))
    assert "Nobody needs a review, or was late." in unescape(page)
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Everybody"] and 'href="ada%20%231/' in page


def test_who_was_late(report):
    assert [(one.student, one.late_s, one.penalty) for one in report.late] == [("part0", 108000, 1.5), ("part1", 108000, 1.5)]
    assert class_page.late(report.late[0]) == "1 d 6 h"


def test_points_by_hand_settle_what_was_inconclusive_until_it_is_graded_again(tmp_path):
    room = new_room(tmp_path)
    put(room, "ada", verdict(tiers=("full", "full", "inconclusive")), by_hand={"speed": 3.0})
    with Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}") as gradebook:
        grade = gradebook.find_grade("speed", LAB.name, LAB.name, "ada")
        grade.needs_manual_grade = False  # as formgrader leaves it
        gradebook.db.commit()
        assert read(LAB, room).to_review == () and read(LAB, room).submissions[0].judged == 9
        grade.needs_manual_grade = True  # as grading again leaves it
        gradebook.db.commit()
    (reason,) = read(LAB, room).to_review[0].review.reasons
    assert reason.code == "by_hand" and "before the last grading" in reason.text


def test_those_without_a_grade_are_not_forgotten(room, report, tmp_path):
    own = new_room(tmp_path)
    put(own, "ada", verdict())
    put(own, "ben", None)
    with Gradebook(f"sqlite:///{own.folder / 'gradebook.db'}") as gradebook:
        gradebook.add_student("cleo")
    (own.folder / "submitted/dora" / LAB.name).mkdir(parents=True)
    found = read(LAB, own)
    assert (found.ungraded, found.missing) == (("dora",), ("cleo",))
    assert {task.tier for task in found.submissions[1].tasks} == {"ungraded"}
    assert "grade this submission again" in found.to_review[0].review.reasons[0].text
    assert "dora" in class_page.page(found) and "cleo" in class_page.page(found)


def test_nothing_graded_and_a_damaged_verdict_are_clear_errors(tmp_path):
    room = new_room(tmp_path)
    with pytest.raises(CourseError, match="`course grade lab01_first_engine` comes first"):
        read(LAB, room)
    put(room, "ada", verdict())
    path = room.folder / "reports/ada" / f"{LAB.name}.json"
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(CourseError, match="is not a verdict"):
            read(LAB, room)
    (room.folder / "gradebook.db").unlink()
    with pytest.raises(CourseError, match="comes first"):
        read(LAB, room)


# ---- the page


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names, self.attributes = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes += attrs


def test_the_page_shows_the_class_and_loads_nothing(report):
    text = class_page.page(report)
    tags = Tags(text)
    assert tags.names.isdisjoint({"script", "link", "iframe", "object", "img"})
    links = [value for name, value in tags.attributes if name in ("src", "href", "xlink:href") and not value.startswith("#")]
    assert all(re.fullmatch(r"[\w%.-]+/[\w.-]+\.html", link) for link in links) and "url(http" not in text, (
        "reports beside it only"
    )
    assert "30 graded, 3 to review, 2 late" in text
    alts = [value for name, value in tags.attributes if name == "aria-label"]
    assert len(alts) == 2 and "median 11 of 12" in alts[0] and "73 % full" in alts[1]


def test_who_needs_a_decision_comes_first_and_the_points_of_a_row_add_up(report):
    assert [one.student for one in report.by_need[:4]] == ["unlucky", "unsure", "writer", "full00"]
    for one in report.by_need:
        assert one.final == max(0.0, sum(task.points for task in one.tasks) + one.written.earned - one.penalty)
        assert one.max_score == sum(task.max_points for task in one.tasks) + one.written.maximum == 12
    rows = class_page.page(report).partition(">Everybody<")[2]
    assert rows.index("unlucky") < rows.index("writer") < rows.index("full00") and "written (of 2)" in rows


def test_the_leaderboard_has_an_axis_and_groups_and_says_who_is_pending(report):
    board = class_page.board(report, leaderboard.ranked(report.submissions))
    assert [word in board for word in ('%">1</small>', ">0.9</small>", ">1.1</small>", "points<br>of 10<")] == [True] * 4
    assert [board.count(f'rowspan="{size}"') for size in (21, 4, 3)] == [1, 1, 1]
    assert board.count("2 points of the written answer are not published") == 1
    assert "unlucky</td><td" in board and board.index("none2") < board.index("unlucky") < board.index("pending")
    assert board.count("pending") == 1 and board.count("not measured") == 3


def test_lost_and_open_points_stand_out(report):
    rows = re.findall(r"<tr>(.*?)</tr>", class_page.page(report).partition(">Everybody<")[2])
    tones = {re.search(r">(\w+)</a>", row)[1]: re.findall(r'class="number short (\w+)"', row) for row in rows if "</a>" in row}
    assert tones["full00"] == ["final", "full", "full", "full"] and tones["part0"] == ["final", "full", "partial", "full"]
    assert tones["none0"] == ["final", "none", "none", "none"] and tones["unsure"][-1] == "inconclusive"


def test_a_table_tells_points_that_are_open_from_those_that_are_not(tmp_path, capsys):
    """An inconclusive task of 4 points keeps the 2 of its lower tier, and 0 points by hand are not open."""
    room = new_room(tmp_path)
    unsure = verdict(tiers=("full", "none", "inconclusive"))
    put(room, "all", unsure, written=None)
    put(room, "hand", unsure, by_hand={"speed": 0.0})
    put(room, "hand failed", faulty(), by_hand={task.id: 0.0 for task in LAB.tasks}, written=0.0)
    unsure["tasks"][2]["points"] = 2.0
    put(room, "some", unsure)
    made = write(LAB, room)
    shown = {one.student: [*map(str, one.tasks), one.written.in_cell] for one in made.report.submissions}
    assert shown["all"] == ["3", "0", "-", "-"] and shown["hand"] == ["3", "0", "0", "1"]
    assert shown["hand failed"] == ["0"] * 4 and shown["some"] == ["3", "0", "2, 2 open", "1"]
    console.class_report(made)
    printed, page = capsys.readouterr().out, class_page.page(made.report)
    assert printed.count("2, 2 open") == page.partition(">Everybody<")[2].count(">2, 2 open<") == 1


def test_half_points_have_their_own_bar(report):
    figure, words = class_figures.distribution(report)
    bars = {bar.get_x() + bar.get_width() / 2: bar.get_height() for bar in figure.axes[0].patches}
    assert bars == pytest.approx({0: 3, 1: 1, 7: 1, 8: 2, 9.5: 2, 10: 1, 11: 20}) and "2 with 9.5" in words


HOSTILE = '<img src=x onerror="alert(1)">&"\''


def test_whatever_a_learner_names_is_escaped(tmp_path):
    room = new_room(tmp_path)
    found = verdict(tiers=("full", "inconclusive", "full"))
    found["tasks"][1]["message"] = f"'{HOSTILE}' is not a recipe"
    for student in (f"a {HOSTILE}", f"b {HOSTILE}"):
        student = student.replace("/", "")
        put(room, student, found, late=timedelta(hours=1), first_name=HOSTILE)
    made = write(LAB, room, leaderboard=True)
    for path in made.files:
        text = path.read_text()
        assert "img" not in Tags(text).names and "onerror" not in {name for name, _ in Tags(text).attributes}
        assert "&lt;img src=x" in text


def test_a_class_in_which_nobody_was_raced(tmp_path):
    room = new_room(tmp_path)
    put(room, "ada", verdict(tiers=("none",) * 3, speedup=0))
    put(room, "ben", faulty())
    found = read(LAB, room)
    assert found.baseline == ""
    assert len([name for name, _ in Tags(class_page.page(found)).attributes if name == "aria-label"]) == 2, "as with a race"


def test_files_and_json(room, tmp_path):
    made = write(LAB, room, tmp_path / "grades.csv", "moodle", leaderboard=True, anonymous=True)
    names = [path.name for path in made.files]
    assert names == [f"{LAB.name}.html", f"{LAB.name}.leaderboard.html", "grades.csv"]
    assert all(path.is_file() for path in made.files)
    document = json.loads(json.dumps(made.to_json()))
    assert len(document["submissions"]) == len(document["leaderboard"]) == 30 and document["submissions"][0]["final"] == 11
    learners = (room.folder / "reports" / "full00" / f"{LAB.name}.html").read_text()
    assert ">11 <span>of 12 points" in learners, "with the points by hand, which came after the grading"
    published = made.files[1].read_text()
    assert not re.search(r"full\d\d|part\d|none\d|unsure|writer", published)


def test_who_needs_the_instructor_is_one_row_a_reason(tmp_path, capsys):
    """Twenty written answers wait for their points, which is one line; what concerns one learner is another."""
    room = new_room(tmp_path)
    for number in range(20):
        put(room, f"s{number:02}", verdict(), written=None)
    put(room, "unsure", verdict(tiers=("full", "full", "inconclusive")))
    for name in ("never", "broken", "a[1]", "\udcff"):
        (room.folder / "submitted" / name / LAB.name).mkdir(parents=True)
    note(room.folder, "broken", LAB, "its worker ended 3 times (Killed: 9)")
    note(room.folder, "s03", LAB, "timestamp.txt holds no time")
    report = read(LAB, room)
    waits, unsure = sorted(attention.to_review(report), key=lambda need: -len(need.who))
    assert len(waits.who) == 20 and waits.open == 20 * WRITTEN
    assert (unsure.who, unsure.open) == (("unsure",), 4.0) and attention.to_review(report)[0] == unsure, "the long one is last"
    assert {need.who: need.why.split(":")[0] for need in attention.not_graded(report)} == {
        ("'\\udcff'",): "the name is not UTF-8",
        ("'a[1]'",): 'the name contains "["',
        ("broken",): "its worker ended 3 times (Killed",
        ("never",): "not graded yet",
    }
    assert [(need.who, need.why) for need in attention.in_part(report)] == [(("s03",), "timestamp.txt holds no time")]
    page = class_page.page(report)
    assert page.count("<h2>Not graded</h2>") == page.count("<h2>Graded in part</h2>") == page.count("<h2>To review</h2>") == 1
    assert page.index("Not graded") < page.index("To review") < page.index("<svg"), "it comes first"
    group = page.partition("<h2>To review</h2>")[2].partition("and 14 more")[0]
    assert group.count(f'/{LAB.name}.html">s0') == 6, "each of a group leads to its report"
    assert "run <code>course grade lab01_first_engine</code>" in page and "`" not in page
    console.class_report(ClassFiles(report, {}, (), ()))
    assert "to review: s00, s01, s02, s03, s04, s05 and 14 more: " in capsys.readouterr().out
    page.encode()  # a name that is not UTF-8 does not stop the page
    assert [row["submission"] for row in json.loads(json.dumps(report.to_json()))["rejected"]] == ["'a[1]'", "'\\udcff'"]
    note(room.folder, "s03", LAB, "")
    assert attention.in_part(read(LAB, room)) == ()
