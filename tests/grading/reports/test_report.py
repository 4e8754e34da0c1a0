"""The page that a learner gets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from markupsafe import escape

from course_lib import labs
from course_lib.benchmark import Comparison, Measurement, speedup
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import Cell
from course_lib.grading.reports import report
from course_lib.grading.reports.layer_feedback import Difference, LayerFeedback
from course_lib.labs.framework.criteria import ALL, HALF
from course_lib.labs.lab01_first_engine import checks as lab01
from tests.grading.classes import real_verdict
from tests.grading.conftest import LAB
from tests.grading.reports.test_class_report import HOSTILE, Tags

LAYERS = LayerFeedback(
    (15, 13),
    (
        "Your engine has 15 kernels, 2 more than the reference.",
        f"Three layers read FP32 where the reference reads INT8: {HOSTILE}.",
    ),
    (Difference(("/stem/Conv", HOSTILE), "Conv + Relu", (2, 1), ("FP32", "INT8")),),
)


@pytest.fixture(scope="module")
def page() -> str:
    return report.page(LAB, replace(real_verdict(), layers=LAYERS), f"ada {HOSTILE}")


def test_it_says_what_was_earned_and_why(page):
    verdict = real_verdict()
    assert f"{verdict.score:g} <span>of 10 points" in page
    for outcome in verdict.outcomes:
        assert (
            f"<b>{outcome.task.title}</b>" in page and f"<strong>{outcome.points:g} / {outcome.task.points:g}</strong>" in page
        )
        for criterion in outcome.criteria:
            assert all(str(escape(text)) in page for text in (criterion.name, criterion.found, criterion.bound))


def test_each_number_is_there_once_besides_its_plot():
    first, _, speed = real_verdict().outcomes
    values = [replace(one, found="1.23x [1.20-1.26]", met=one.needed_for == HALF) for one in speed.criteria]
    slow = LAB.decided("speed", [replace(values[0], needed_for=HALF, met=True), replace(values[0], needed_for=ALL, met=False)])
    missed = replace(slow.criteria[1], name="names", symptom="The name is wrong.")
    wrong = LAB.decided("accuracy", [*slow.criteria, missed])
    page = report.points(replace(real_verdict(), outcomes=(first, wrong, slow)))
    assert page.count("1.23x [1.20-1.26]") == 3, "two values of accuracy, one of speed"
    assert page.count("The name is wrong.") == 1 and "Not met" not in page
    assert [word in page for word in ("\u2713 at least", "\u2717 at least")] == [True, True]


@pytest.mark.parametrize(
    ("written", "total", "row"),
    [
        (Cell("written", 0, 2, marked=True), "10 <span>of 12 points, 2 open", "- / 2"),
        (Cell("written", 1.5, 2, by_hand=True), "11.5 <span>of 12 points<", "1.5 / 2"),
        (Cell("written", 0, 2), "10 <span>of 12 points<", "0 / 2"),
    ],
)
def test_the_written_question_counts_as_it_does_everywhere(written, total, row):
    given = replace(real_verdict(), outcomes=tuple(LAB.outcome(task.id, "full", "All met.") for task in LAB.tasks))
    cells = [Cell(task.id, task.points, task.points) for task in LAB.tasks] + [written]
    page = report.page(LAB, given, "ada", cells)
    assert total in page and f"<strong>{row}</strong>" in page.partition("<b>Written question</b>")[2]
    assert report.points(given, cells) in page and report.points(given) not in page
    late = report.page(LAB, given, "ada", cells, penalty=3.0)
    assert total in late and f"3 points are taken off, and {10 + written.points - 3:g} count" in late


def test_points_by_hand_replace_the_verdicts():
    cells = [Cell(task.id, 1.0, task.points, by_hand=True) for task in LAB.tasks]
    page = report.page(LAB, real_verdict(), "ada", cells)
    assert "3 <span>of 10 points" in page and page.count(">points from an instructor<") == 3


def test_a_message_that_several_tasks_share_is_there_once(tmp_path):
    for page in (
        report.page(LAB, judge(LAB, tmp_path, trusted=True), "ada"),
        report.body(replace(real_verdict(), outcomes=LAB.zero_outcomes("BUILD FAILED", "Build it."))),
    ):
        assert page.count("<section") == 1 and page.count("<strong>0 / ") == len(LAB.tasks)
        assert page.count("model.onnx is missing") + page.count("BUILD FAILED") == 1
    waiting = LAB.outcome("speed", "inconclusive", "The machine was busy.", share=0.0)
    page = report.page(LAB, replace(real_verdict(), outcomes=(waiting,)), "ada")
    assert page.count("The machine was busy.") == 1 and "<strong>- / 4</strong>" in page


def test_it_loads_nothing_and_escapes_what_a_learner_names(page):
    tags = Tags(page)
    assert tags.names.isdisjoint({"script", "link", "iframe", "object", "img"})
    assert [value for name, value in tags.attributes if name in ("src", "href") and not value.startswith("#")] == []
    assert "onerror" not in {name for name, _ in tags.attributes}
    assert page.count("&lt;img src=x") == 4  # the title, the heading, a sentence, a cell of the table


def test_the_race_is_there_with_its_boundaries_and_in_words(page):
    comparison = real_verdict().comparison
    alt = " ".join(value for name, value in Tags(page).attributes if name == "aria-label")
    assert f"your engine {comparison.measurements['yours'].median_ms:.3g} ms" in alt
    assert str(comparison.speedups["yours"]) in alt and str(comparison.ratio("reference", "yours", seed=0)) in alt
    assert "Part of the points from 0.5, all from 0.85." in alt and "Part of the points from 1.05, all from 1.15." in alt


def test_the_layers_are_told_in_words_and_as_a_table(page):
    assert "Your engine has 15 kernels, 2 more than the reference." in page
    assert "/<wbr>stem+<wbr>norm/<wbr>Conv" in page, "a long name breaks between its parts"
    assert "13 with FP32" in page and ">types<" not in page, "the one type of all kernels is in the caption"
    assert "/stem/Conv" in page and ">INT8</td>" in page


def test_a_column_without_entries_is_not_shown():
    kernels_only = replace(LAYERS, differences=(Difference(("/stem/Conv",), "Conv + Relu", (2, 1), ("", "")),))
    page = report.page(LAB, replace(real_verdict(), layers=kernels_only), "ada")
    assert "your kernels" in page and "you read" not in page


def test_it_says_how_to_repeat_it(page):
    known = real_verdict().provenance
    assert f"course check {LAB.name} ." in page
    assert known["builder"] in page and known["runner"] in page and known["course"] in page
    assert all(version in page for version in known["backends"].values())
    assert known["sha256"]["model.onnx"][:12] in page


def test_nothing_hidden_is_in_it(page):
    """Neither the seed of the fresh data nor a whole digest; and whatever else provenance holds one day stays out, too."""
    known = real_verdict().provenance
    assert str(known["seed"]) not in page and known["sha256"]["model.onnx"] not in page
    more = replace(real_verdict(), provenance={**known, "health": "planted-4711", "key": "planted-4711"})
    assert "planted-4711" not in report.page(LAB, more, "ada")


def test_a_lab_without_paces_shows_its_race_without_boundaries():
    rng = [1.0 + n % 7 / 100 for n in range(50)]
    import numpy as np

    given, yours = np.array(rng), np.array(rng) / 2
    measured = {"given": Measurement(given), "yours": Measurement(yours)}
    race = Comparison("given", measured, {"yours": speedup(given, yours)}, 1.0, "time")
    lab = labs.find("lab10")
    assert lab.speed is None and LAB.speed is lab01.SPEED
    slow = replace(real_verdict(), lab=lab.name, outcomes=lab.zero_outcomes("too slow"), comparison=race)
    page = report.page(lab, slow, "ada")
    assert "against\ngiven" not in page and "Your speed divided by that of given: 2.00x [2.00-2.00]." in page
    assert "Part of the points from" not in page and "ended when its time was up" in page


def test_a_submission_without_files(tmp_path):
    verdict = judge(LAB, tmp_path, trusted=True)
    page = report.page(LAB, verdict, "ada")
    assert "0 <span>of 10 points" in page and "no files" in page and "How fast" not in page


def test_a_fault_of_the_examiners_and_an_inconclusive_verdict_say_that_somebody_will_look():
    faulty = report.body(replace(real_verdict(), outcomes=(), fault=f"disk full {HOSTILE}"))
    assert "the examiner failed: disk full &lt;img" in faulty and "0 <span>of 10 points, 10 open" in faulty
    first, *others = real_verdict().outcomes
    unsure = report.body(replace(real_verdict(), outcomes=(replace(first, tier="inconclusive", points=1.5), *others)))
    assert f"<li>{first.task.title}: inconclusive." in unsure and "8.5 <span>of 10 points, 1.5 open" in unsure
