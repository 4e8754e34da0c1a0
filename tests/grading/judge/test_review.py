"""What an instructor has to look at: one reason each, and points that add up wherever they are shown."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import pytest
from nbgrader.api import Gradebook

from course_lib import labs
from course_lib.cli import console
from course_lib.grading.judge.review import Points, Review
from course_lib.grading.judge.verdict import Verdict
from course_lib.grading.nbgrader import gradebook
from course_lib.grading.reports import class_page, exports, report
from course_lib.grading.reports.class_report import read
from course_lib.labs.framework.criteria import HALF, NOT_EXAMINED, UNUSUAL, Criterion
from tests.grading.classes import faulty, new_room, put, real_verdict, verdict
from tests.grading.conftest import LAB


def unsure(code: str = "", earned: float = 2.0) -> dict:
    """Speed is inconclusive: `earned` of its 4 points are there in any case."""
    document = verdict(tiers=("full", "full", "inconclusive"))
    document["tasks"][2] |= {
        "points": earned,
        "code": code,
        "message": "Inconclusive: the message" if not code else "the message",
    }
    document["score"] = 6 + earned
    return document


# verdict, points by hand for the written question of 2 (None: it has none yet); earned, open, lost of 12; codes of the reasons
CASES = {
    "nothing to review": (lambda: verdict(tiers=("full", "partial", "none")), 1.0, (5.5, 0, 6.5), []),
    "inconclusive, half earned": (lambda: unsure(), 2.0, (10, 2, 0), ["inconclusive"]),
    "the examiner failed": (lambda: faulty(), 1.0, (1, 10, 1), ["fault"]),
    "bindings are missing": (lambda: unsure(NOT_EXAMINED, 0.0), 2.0, (8, 4, 0), ["not_examined"]),
    "a written question has no points": (lambda: verdict(), None, (10, 2, 0), ["ungraded"]),
    "two reasons": (lambda: unsure(), None, (8, 4, 0), ["inconclusive", "ungraded"]),
    "the examiner failed, and a written question": (lambda: faulty(), None, (0, 12, 0), ["fault", "ungraded"]),
    "no verdict": (lambda: None, 2.0, (2, 10, 0), ["no_verdict"]),
}


@pytest.fixture(params=CASES)
def case(request, tmp_path):
    """A classroom of one, and what is expected of its submission."""
    document, written, points, codes = CASES[request.param]
    room = new_room(tmp_path)
    put(room, "ada", document(), written=written)
    return room, points, codes


def test_points_add_up_wherever_they_are_shown(case, tmp_path, capsys):
    room, (earned, open_points, lost), codes = case
    found = read(LAB, room)
    (one,) = found.submissions
    assert (one.review.points, one.review.points.lost) == (Points(earned, open_points, 12), lost)
    assert earned + open_points + lost == 12
    assert [reason.code for reason in one.review.reasons] == codes and one.review.needed == bool(codes)
    assert [each.student for each in found.to_review] == ["ada"] * bool(codes)

    grade = room._grade(LAB, "ada", "")  # as `course grade` reads it
    assert grade.review == one.review
    assert grade.failed == bool({"fault", "no_verdict"} & set(codes))
    known = grade.to_json()
    assert known["review"]["points"] == {"earned": earned, "open": open_points, "lost": lost, "maximum": 12}
    assert (known["score"], known["max_score"]) == (earned, 12)
    document = found.to_json()["submissions"][0]
    assert document["review"] == known["review"] and document["score"] == earned
    assert json.loads(json.dumps(document))["review"]["needed"] == bool(codes)

    console.grades(LAB, [grade])
    shown = capsys.readouterr().out
    assert f"{earned:g} / 12" in shown and all(reason.text in shown for reason in one.review.reasons)
    page = class_page.page(found)
    assert f"{earned:g} of 12" in page and ("To review" in page) == bool(codes)

    for form in exports.FORMATS:
        target = tmp_path / f"{form}.csv"
        exports.export(form, LAB, room, found, target)
        rows = list(csv.reader(target.open(encoding="utf-8")))
        column = rows[0].index("score") if form == "nbgrader" else -1
        assert float(rows[-1][column]) == earned


def test_each_reason_is_its_own():
    texts = {}
    for name in ("inconclusive, half earned", "bindings are missing"):
        (reason,) = Review.of(LAB, Verdict.from_json(CASES[name][0]())).reasons
        texts[name] = reason.text
    title = LAB.tasks[2].title
    assert texts["inconclusive, half earned"] == f"{title}: inconclusive. The message"
    assert texts["bindings are missing"] == f"{title}: not examined. The message"


def test_the_learners_report_says_the_same():
    body = report.body(Verdict.from_json(unsure()))
    assert "8 <span>of 10 points, 2 open" in body and "inconclusive. The message" in body
    missing = report.body(Verdict.from_json(unsure(NOT_EXAMINED, 0.0)))
    assert "6 <span>of 10 points, 4 open" in missing and "measuring could not decide" not in missing
    assert "not examined. The message" in missing
    settled = report.body(Verdict.from_json(verdict()))
    assert "open</span>" not in settled and "review this submission" not in settled


def test_the_gradebook_marks_what_has_to_be_reviewed(tmp_path):
    room = new_room(tmp_path)
    put(room, "ada", verdict())
    with Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}") as opened:
        grades = opened.find_submission_notebook(LAB.name, LAB.name, "ada").grades
        for document, marked in ((unsure(), {"speed"}), (faulty(), {task.id for task in LAB.tasks}), (verdict(), set())):
            found = Verdict.from_json(document)
            gradebook.write_points(grades, LAB, found)
            assert {grade.name for grade in grades if grade.needs_manual_grade} == marked == set(Review.of(LAB, found).cells)
            assert sum(grade.auto_score for grade in grades if grade.name != "written") == found.score


def test_a_verdict_comes_back_from_its_json():
    for document in (json.loads(json.dumps(real_verdict().to_json())), faulty(), unsure()):
        assert json.loads(json.dumps(Verdict.from_json(document).to_json())) == json.loads(json.dumps(document))
    assert Verdict.from_json(real_verdict().to_json()).of_reference == real_verdict().of_reference


def test_a_result_better_than_any_known_and_missing_bindings_have_codes(tmp_path, monkeypatch):
    from course_lib.labs.lab08_plugin import checks
    from course_lib.migration.tables.bindings import BindingsUnavailable

    kernels = labs.find("lab02").decided("kernels", [Criterion("kernels", "5", "14", None, HALF, code=UNUSUAL)])
    assert (kernels.tier, kernels.code, kernels.points) == ("inconclusive", "unusual", 0)

    def gone(*_: object) -> None:
        raise BindingsUnavailable("TensorRT 10.16 cannot be fetched")

    monkeypatch.setattr(checks, "read_text", lambda *_: "")
    monkeypatch.setattr(checks, "call_plugin", gone)
    lab = labs.find("lab08")
    (plugin,) = lab.examine(tmp_path, labs.Examiner(builder="onnxruntime", runner="onnxruntime"), only="plugin").outcomes
    assert (plugin.tier, plugin.code, plugin.points) == ("inconclusive", NOT_EXAMINED, 0)
    outcomes = [*(replace(plugin, task=task, tier="full", points=task.points) for task in lab.tasks[:2]), plugin]
    review = Review.of(lab, Verdict(lab.name, tuple(outcomes), "", {}))
    assert review.points == Points(7, 3, 10) and review.reasons[0].text.startswith(f"{plugin.task.title}: not examined.")
