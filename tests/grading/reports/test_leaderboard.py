"""Ranks that measuring can defend, and pseudonyms that only the classroom can tell."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from course_lib.benchmark import Interval
from course_lib.grading.judge.review import Points, Review
from course_lib.grading.reports.class_report import Submission, TaskResult
from course_lib.grading.reports.leaderboard import pseudonym, ranked


def submission(student: str, points: float, low: float = 0.0, high: float = 0.0) -> Submission:
    speed = Interval((low + high) / 2, low, high) if high else None
    return Submission(
        student, (TaskResult("speed", "Speed", "full", points, 10),), Review(Points(points, 0, 12)), of_reference=speed
    )


def ranks(*submissions: Submission) -> list[tuple[int | None, str]]:
    return [(place.rank, place.name) for place in ranked(submissions)]


def test_points_come_first_then_the_lower_end_and_overlaps_share_a_rank():
    assert ranks(
        submission("fewer", 9, 5.0, 5.1),
        submission("lucky", 10, 1.0, 3.9),  # the best median of a wide interval
        submission("first", 10, 2.0, 2.1),
        submission("close", 10, 1.95, 2.05),
        submission("slow", 10, 1.2, 1.3),
    ) == [(1, "first"), (1, "close"), (3, "slow"), (3, "lucky"), (5, "fewer")]


def test_who_was_not_raced_comes_after_those_who_were():
    assert ranks(submission("b", 10), submission("a", 10), submission("raced", 10, 1.0, 1.1)) == [
        (1, "raced"),
        (2, "a"),
        (2, "b"),
    ]


def test_who_could_not_be_judged_is_pending_and_takes_no_rank():
    failed = Submission("failed", (TaskResult("speed", "Speed", "ungraded", 0, 10, open=10),), Review(Points(0, 10, 10)))
    assert ranks(failed, submission("none", 0), submission("some", 5)) == [(1, "some"), (2, "none"), (None, "failed")]
    by_hand = Submission("by hand", (TaskResult("speed", "Speed", "ungraded", 0, 10),), Review(Points(0, 0, 10)))
    assert ranks(failed, by_hand) == [(1, "by hand"), (None, "failed")], "an instructor gave no points"
    assert [place.rank for place in ranked([failed, submission("none", 0)], key=b"k" * 32)] == [1, None]


@given(st.lists(st.tuples(st.sampled_from([8.0, 10.0]), st.floats(0.1, 5), st.floats(0, 2)), max_size=12))
def test_a_rank_counts_everybody_above_it(rows):
    places = ranked([submission(f"s{n}", points, low, low + width + 0.01) for n, (points, low, width) in enumerate(rows)])
    assert [place.rank for place in places] == sorted(place.rank for place in places)
    for place in places:
        better = [one for one in places if one.points > place.points]
        beaten_by = [one for one in places if one.points == place.points and one.speed.low > 1.1 * place.speed.high]
        assert place.rank > len(better) and (place.rank > 1 + len(better) or not beaten_by)
        assert sum(one.rank < place.rank for one in places) == place.rank - 1


@given(st.floats(0.3, 3), st.floats(-0.026, 0.026), st.floats(-0.026, 0.026))
def test_equal_engines_graded_in_two_sessions_share_a_rank(speed, first, second):
    """Seen: two byte-identical submissions at 2.00x [1.88-2.10] and 1.65x [1.58-1.70] over PyTorch, 1.00x and 1.01x of the reference."""
    ones = [
        submission(name, 10, 0.995 * speed * (1 + off), 1.005 * speed * (1 + off))
        for name, off in (("a", first), ("b", second))
    ]
    assert [place.rank for place in ranked(ones)] == [1, 1]


def test_a_clear_difference_is_a_rank():
    assert [place.rank for place in ranked([submission("a", 10, 1.0, 1.02), submission("b", 10, 1.12, 1.14)])] == [1, 2]


def test_pseudonyms_are_stable_and_need_the_key():
    places = ranked([submission("ada", 10), submission("ben", 10)], key=b"k" * 32)
    assert {place.name for place in places} == {pseudonym(b"k" * 32, "ada"), pseudonym(b"k" * 32, "ben")}
    assert pseudonym(b"k" * 32, "ada") != pseudonym(b"l" * 32, "ada")
    assert [place.name for place in places] == sorted(place.name for place in places), "order within a rank tells nothing"
    # HMAC-SHA256 of RFC 4231, test case 2, cut to 40 bits: 5bdcc146bf in base32
    assert pseudonym(b"Jefe", "what do ya want for nothing?") == "lpomcrv7"
