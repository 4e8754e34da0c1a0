"""The tuner with tactics whose times are known, the cache, and blocked products against a plain one."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.benchmark.tuner import Tuning, TuningCache, blocked_products, first_impression, tune
from course_lib.errors import CourseError
from course_lib.teaching.auto_tuning.tactics import draw_tuning
from course_lib.teaching.why import break_even, draw_break_even


def sleeping(ms: float, calls: list[str] | None = None, name: str = ""):
    def run() -> None:
        if calls is not None:
            calls.append(name)
        time.sleep(ms / 1e3)

    return run


TACTICS = {"slow": sleeping(8), "fast": sleeping(1)}


def test_the_faster_one_wins():
    assert first_impression(TACTICS) == "fast"
    tuning = tune(TACTICS, rounds=10)
    assert tuning.best == "fast" and list(tuning.medians_ms) == ["fast", "slow"]
    assert tuning.over("slow").low > 2 and tuning.over("fast").median == 1


def test_every_round_times_each_tactic_once():
    calls: list[str] = []
    tuning = tune({name: sleeping(0, calls, name) for name in "abc"}, rounds=6, seed=1)
    assert [sorted(calls[i : i + 3]) for i in range(0, 21, 3)] == [["a", "b", "c"]] * 7  # the first three warm up
    assert len({tuple(calls[i : i + 3]) for i in range(3, 21, 3)}) > 1  # shuffled
    assert all(len(times) == 6 for times in tuning.times_ms.values())


QUIET = np.ones(105)
# The machine is idle, then busy with something that hits one tactic only, then busy with something that hits both; and again.
BUSY, HIT_ONCE = np.tile([1.0, 10.0, 1.1, 1.0, 10.0], 21), np.tile([0.9, 9.0, 3.0, 0.9, 9.0], 21)


@pytest.mark.parametrize(
    ("best", "rival", "says"),
    [
        (QUIET, 2 * QUIET, "faster"),
        (QUIET, np.random.default_rng(0).permutation([0.9] * 52 + [1.001] + [1.1] * 52), "no difference shown"),
        (BUSY, HIT_ONCE, "slower within most rounds, in spite of its median"),
    ],
)
def test_a_comparison_says_what_the_rounds_say(best: np.ndarray, rival: np.ndarray, says: str) -> None:
    tuning = Tuning({"rival": rival, "best": best})
    assert tuning.best == "best", "the smallest median of all rounds"
    compared = tuning.compared("rival")
    assert compared.startswith(f"best over rival: {tuning.over('rival')}, ") and says in compared


def test_a_cached_choice_is_not_measured_again():
    calls: list[str] = []
    tactics = {"a": sleeping(0, calls, "a")}
    cache = TuningCache("here")
    choice, filled = cache.choose("p", tactics, rounds=3)
    assert choice == "a" and filled.entries == {"p": "a"} and cache.entries == {} and len(calls) == 4
    assert filled.choose("p", tactics) == ("a", filled) and len(calls) == 4


def test_combining_keeps_ones_own_entries():
    mine, theirs = TuningCache("here", {"p": "mine"}), TuningCache("here", {"p": "theirs", "q": "new"})
    assert mine.combine(theirs).entries == {"p": "mine", "q": "new"}
    far = TuningCache("there", {"q": "new"})
    with pytest.raises(CourseError, match="measured on 'there' says nothing about 'here': tune again"):
        mine.combine(far)
    assert mine.combine(far, ignore_mismatch=True).machine == "here"


@given(st.dictionaries(st.text(), st.text()), st.text())
def test_a_cache_survives_its_file(entries, machine):
    cache = TuningCache(machine, entries)
    assert TuningCache.loads(cache.dumps()) == cache


@given(st.one_of(st.text(), st.just("[" * 100_000)))
def test_any_other_text_is_rejected(text):
    with pytest.raises(CourseError, match="not a tuning cache"):
        TuningCache.loads(text)


def test_blocked_products_are_the_product():
    a, b = torch.rand(7, 10), torch.rand(10, 9)
    tactics = blocked_products(a, b, [(7, 9, 10), (2, 4, 3), (5, 9, 1)])
    assert list(tactics) == ["7x9x10", "2x4x3", "5x9x1"]
    for run in tactics.values():
        run()
        torch.testing.assert_close(run(), a @ b)  # the second call does not add to the first


def test_the_figure_counts_wins():
    tuning = Tuning({"a": np.array([1.0, 1.1]), "b": np.array([2.0, 2.1])})
    figure = draw_tuning(tuning, ["a", "b", "a"])
    left, right = figure.axes
    assert [bar.get_width() for bar in right.patches] == [2, 1]
    assert len(left.lines) == 4
    assert "a has the smallest median; a single try chose another 1 times of 3" in figure.get_suptitle()


def test_break_even():
    assert break_even(10, 3, 1) == 5000
    assert break_even(10, 1, 1) == float("inf")
    axes = draw_break_even({"slow": (0, 3), "fast": (10, 1)}, 6000, "title").axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[0, 18], [10, 16]]
