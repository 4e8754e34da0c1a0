"""Signed verdicts: whatever is altered is noticed, and what a verdict says follows from what it holds."""

from __future__ import annotations

import copy
import json
import stat

import pytest

from course_lib.errors import CourseError
from course_lib.grading.integrity import signature
from course_lib.grading.judge.recompute import contradictions
from tests.grading.classes import real_verdict


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    return signature.signing_key(tmp_path_factory.mktemp("room"))


@pytest.fixture(scope="module")
def document(key):
    """A real verdict, as it lies on disk."""
    verdict = real_verdict()
    assert verdict.score == 10
    return json.loads(json.dumps(signature.signed(verdict.to_json(), key)))


def test_a_verdict_holds(document, key):
    assert contradictions(document) == []
    assert contradictions(document, signature.public_key(key)) == []
    assert document["provenance"]["health"] and document["layers"] is not None
    assert len(document["comparison"]["latencies_ms"]["yours"]) == document["comparison"]["rounds"]


def test_alterations_are_noticed(document, key, tmp_path):
    altered = copy.deepcopy(document)
    altered["tasks"][0]["points"] = 0
    assert contradictions(altered) == ["the verdict was altered after it was signed"]
    unsigned = {name: value for name, value in document.items() if name != "signature"}
    assert contradictions(unsigned) == ["the verdict carries no signature"]
    forger = signature.signing_key(tmp_path)
    forged = signature.signed(unsigned, forger)
    assert contradictions(forged, signature.public_key(key)) == [
        "the verdict was signed with another key than this classroom's"
    ]
    assert contradictions(forged) == []
    for nonsense in ({}, {"signature": 7}, {"signature": {"public_key": "zz", "value": ""}}):
        assert contradictions(nonsense) == ["the verdict carries no signature"]
    short = {"signature": {"public_key": "00", "value": "00"}}
    assert contradictions(short) == ["the verdict was altered after it was signed"]


def resigned(document, key, change):
    """What a grader with a bug, or an instructor with a favorite, would have signed."""
    altered = copy.deepcopy({name: value for name, value in document.items() if name != "signature"})
    change(altered)
    return signature.signed(altered, key)


def test_a_verdict_of_an_examiner_that_failed_holds_no_points(document, key):
    def fail(found, score=0.0):
        found.update(fault="the reference cannot be built", tasks=[], score=score, comparison=None)

    assert contradictions(resigned(document, key, fail)) == []
    paid = resigned(document, key, lambda found: fail(found, score=10.0))
    assert contradictions(paid) == ["the examiner failed, so the verdict can hold no points"]


def slower(found):
    found["comparison"]["latencies_ms"]["yours"] = [3 * ms for ms in found["comparison"]["latencies_ms"]["yours"]]


def drop_a_task(found):
    """With a score that fits what is left."""
    found["score"] -= found["tasks"].pop(1)["points"]


def list_a_task_twice(found):
    found["tasks"].append(copy.deepcopy(found["tasks"][0]))
    found["score"] += found["tasks"][0]["points"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: found["tasks"][0].update(points=99), "99 of"),
        (lambda found: found["tasks"][0]["task"].update(points=99), "has no task"),
        (lambda found: found.update(max_score=20), "the verdict says 20 points can be earned, lab01_first_engine has 10"),
        (drop_a_task, "the verdict has the tasks profile, speed, lab01_first_engine has profile, accuracy, speed"),
        (list_a_task_twice, "the verdict has the tasks profile, accuracy, speed, profile, lab01"),
        (lambda found: found.update(score=11), "do not sum up to it"),
        (lambda found: found["comparison"]["speedup"]["yours"].update(median=9.0), "the verdict says 9.00x"),
        (lambda found: found.update(max_score=10**400), "not a verdict of this course"),
        (slower, "the tier 'none' for speed, the verdict says 'full'"),
        (lambda found: found.pop("tasks"), "not a verdict of this course"),
        (lambda found: found.update(lab="lab99"), "lab99"),
    ],
)
def test_what_does_not_follow_is_named(document, key, change, said):
    assert any(said in sentence for sentence in contradictions(resigned(document, key, change)))


def test_the_key_is_made_once_and_private(tmp_path):
    first, again = signature.signing_key(tmp_path), signature.signing_key(tmp_path)
    assert signature.public_key(first) == signature.public_key(again)
    path = tmp_path / signature.KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and list(tmp_path.iterdir()) == [path]
    path.write_text("no key")
    with pytest.raises(CourseError, match="is not the classroom's signing key"):
        signature.signing_key(tmp_path)
