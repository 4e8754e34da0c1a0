"""Static and continuous batching by hand, against a schedule of batch slots, and against what must always hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from course_lib.teaching.generation.serving import Trace, conversations, serve


class Steps:
    """Each step takes a second, a prompt nothing."""

    def prefill_s(self, prompt: int) -> float:
        return 0.0

    def step_s(self, batch: int, cached: int) -> float:
        return 1.0


class Sums:
    """A step takes a second for each row, a prompt a second for each token."""

    def prefill_s(self, prompt: int) -> float:
        return float(prompt)

    def step_s(self, batch: int, cached: int) -> float:
        return float(batch)


def at_once(*answers: int) -> Trace:
    return Trace(np.zeros(len(answers)), np.ones(len(answers), int), np.array(answers))


ANSWERS = st.lists(st.integers(2, 12), min_size=1, max_size=12)


@given(answers=ANSWERS, slots=st.integers(1, 5))
def test_continuous_slots_are_taken_as_they_get_free(answers: list[int], slots: int) -> None:
    """The prompt gives the first token, so an answer of n tokens has n - 1 steps, and of one token none."""
    free_at = [0] * slots
    ends = []
    for answer in answers:
        slot = free_at.index(min(free_at))
        free_at[slot] += answer - 1
        ends.append(free_at[slot])
    found = serve(at_once(*answers), Steps(), slots=slots, continuous=True)
    np.testing.assert_allclose(np.sort(found.finished_s), np.sort(ends))


@given(answers=ANSWERS, slots=st.integers(1, 5))
def test_static_batches_end_with_their_longest_answer(answers: list[int], slots: int) -> None:
    ends, clock = [], 0
    for first in range(0, len(answers), slots):
        batch = answers[first : first + slots]
        ends += [clock + answer - 1 for answer in batch]
        clock += max(batch) - 1
    found = serve(at_once(*answers), Steps(), slots=slots, continuous=False)
    np.testing.assert_allclose(found.finished_s, ends)


@given(
    gaps=st.lists(st.integers(0, 9), min_size=1, max_size=12), slots=st.integers(1, 4), continuous=st.booleans(), data=st.data()
)
def test_what_always_holds(gaps: list[int], slots: int, continuous: bool, data: st.DataObject) -> None:
    count = len(gaps)
    answers = data.draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    trace = Trace(np.cumsum(gaps).astype(float), np.full(count, 2), np.array(answers))
    found = serve(trace, Sums(), slots=slots, continuous=continuous)
    assert (trace.arrived_s <= found.joined_s).all() and (found.joined_s < found.first_s).all()
    assert (found.first_s <= found.finished_s).all() and (found.finished_s <= found.freed_s).all()
    assert (found.freed_s == found.finished_s).all() or not continuous or count > 1
    for slot in range(slots):
        mine = found.slot == slot
        assert (found.joined_s[mine][1:] >= found.freed_s[mine][:-1]).all(), "one request has a batch slot at a time"
    alone = serve(trace, Sums(), slots=1, continuous=not continuous)
    if slots == 1:
        np.testing.assert_allclose(found.finished_s, alone.finished_s)


def test_by_hand() -> None:
    trace = Trace(np.array([0.0, 0.0, 1.0]), np.array([1, 1, 1]), np.array([2, 4, 2]))
    static = serve(trace, Sums(), slots=2, continuous=False)
    # both prompts take until 2; steps of two rows, also for the row that is complete at 4
    np.testing.assert_array_equal(static.finished_s, [4, 8, 10])
    np.testing.assert_array_equal(static.freed_s, [8, 8, 10])
    assert static.to_first_token_s.tolist() == [1, 2, 8]
    continuous = serve(trace, Sums(), slots=2, continuous=True)
    # the third joins at 4, its prompt ends at 5, the last step of two rows at 7; the second then ends alone
    np.testing.assert_array_equal(continuous.finished_s, [4, 8, 7])
    assert continuous.tokens_per_s == 8 / 8


def test_traffic_keeps_its_requests_at_another_rate() -> None:
    slow, fast = (conversations(1, count=50, per_second=rate) for rate in (1, 10))
    np.testing.assert_array_equal(slow.answer, fast.answer)
    np.testing.assert_allclose(slow.arrived_s, 10 * fast.arrived_s)
    assert slow.prompt.min() >= 1 and slow.answer.max() <= 2000
    assert not np.array_equal(slow.answer, conversations(2, count=50, per_second=1).answer)
