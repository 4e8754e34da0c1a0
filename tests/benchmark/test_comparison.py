"""Subjects of known latency are compared in shuffled order on the same inputs, until the intervals are narrow or the time is up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from course_lib.benchmark import Comparison, Interval, compare

Log = list[tuple[str, int]]


@dataclass
class Fake:
    """A subject whose latency is drawn, not measured; it writes down who was called with which inputs."""

    name: str
    milliseconds: Callable[[], float]
    log: Log = field(default_factory=list)

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        self.log.append((self.name, id(feeds)))
        return self.milliseconds()


def _subjects(noise: float = 0.02, log: Log | None = None) -> dict[str, Fake]:
    rng, log = np.random.default_rng(0), [] if log is None else log

    def draws(base: float) -> Callable[[], float]:
        return lambda: base * float(rng.lognormal(0, noise))

    return {name: Fake(name, draws(base), log) for name, base in {"eager": 8.0, "engine": 2.0, "slow": 16.0}.items()}


def _feeds() -> Callable[[], dict[str, np.ndarray]]:
    kept: list[Any] = []  # alive, so that no two rounds can have the same id

    def make() -> dict[str, np.ndarray]:
        kept.append({"x": np.zeros(1)})
        return kept[-1]

    return make


def _compare(**options: Any) -> Comparison:
    return compare(options.pop("subjects", None) or _subjects(), _feeds(), baseline="eager", **options)


def test_the_ratios_are_those_of_the_subjects() -> None:
    found = _compare()
    assert found.stopped == "precise" and found.baseline == "eager"
    assert found.speedups.keys() == {"engine", "slow"}
    for name, ratio in {"engine": 4.0, "slow": 0.5}.items():
        interval = found.speedups[name]
        assert interval.low <= interval.median <= interval.high and interval.median == pytest.approx(ratio, rel=0.03)
    assert found.ratio("slow", "engine", seed=0).median == pytest.approx(8, rel=0.02)
    assert found.measurements["engine"].median_ms == pytest.approx(2, rel=0.02)


def test_each_round_times_everyone_once_on_the_same_inputs() -> None:
    log: Log = []
    found = _compare(subjects=_subjects(log=log), warmup=3)
    rounds = [log[start : start + 3] for start in range(0, len(log), 3)]
    assert len(rounds) == 3 + len(found.measurements["eager"].latencies_ms), "the warm-up does not count"
    assert all({name for name, _ in calls} == {"eager", "engine", "slow"} for calls in rounds)
    inputs = [{feeds for _, feeds in calls} for calls in rounds]
    assert all(len(one) == 1 for one in inputs) and len(set.union(*inputs)) == len(rounds), "fresh inputs every round"


def test_the_order_is_shuffled() -> None:
    log: Log = []
    _compare(subjects=_subjects(log=log), warmup=0, min_rounds=300, half_width=1.0)
    orders = [tuple(name for name, _ in log[start : start + 3]) for start in range(0, len(log), 3)]
    counts = {order: orders.count(order) for order in set(orders)}
    assert len(counts) == 6 and min(counts.values()) > 20  # 50 expected; less than 20 happens once in a million
    second: Log = []
    _compare(subjects=_subjects(log=second), warmup=0, min_rounds=300, half_width=1.0)
    assert [name for name, _ in second] != [name for name, _ in log], "nobody can know the order beforehand"


def test_it_stops_when_every_interval_is_narrow_enough() -> None:
    coarse, fine = _compare(subjects=_subjects(0.2), half_width=0.1), _compare(subjects=_subjects(0.2), half_width=0.02)
    assert coarse.stopped == fine.stopped == "precise"
    assert all(interval.half_width <= 0.02 for interval in fine.speedups.values())
    assert len(fine.latencies()["eager"]) > len(coarse.latencies()["eager"]) >= 100


def test_it_stops_when_the_time_is_up() -> None:
    started = time.monotonic()
    found = _compare(subjects=_subjects(2.0), half_width=1e-6, time_limit_s=0.5)
    assert found.stopped == "time" and 0.5 <= found.seconds <= time.monotonic() - started < 30
    assert max(interval.half_width for interval in found.speedups.values()) > 1e-6


def test_a_rule_of_ones_own_decides_instead() -> None:
    seen: list[int] = []

    def settled(latencies: Mapping[str, np.ndarray]) -> bool:
        assert latencies.keys() == {"eager", "engine", "slow"}
        seen.append(len(latencies["engine"]))
        return len(latencies["engine"]) >= 400

    found = _compare(settled=settled)
    assert found.stopped == "precise" and len(found.latencies()["engine"]) == seen[-1] >= 400
    assert seen[0] == 100 and seen == sorted(set(seen)) and len(seen) < 10, "it looks rarely"
    assert _compare(settled=lambda _: False, time_limit_s=0.2).stopped == "time"


def test_what_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="'absent'"):
        compare(_subjects(), _feeds(), baseline="absent")
    with pytest.raises(ValueError, match="min_rounds >= 10"):
        _compare(min_rounds=9)
    with pytest.raises(ValueError, match="0 ms"):
        _compare(subjects={name: Fake(name, lambda: 0.0) for name in ("eager", "engine")})


def test_a_subject_that_fails_ends_the_comparison() -> None:
    def fail() -> float:
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        _compare(subjects={**_subjects(), "broken": Fake("broken", fail)})


def test_to_json_is_plain_and_says_what_was_measured() -> None:
    found = _compare()
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["baseline"] == "eager" and document["stopped"] == "precise"
    assert document["rounds"] == len(found.latencies()["eager"]) and document["seconds"] >= 0
    assert document["median_ms"].keys() == document["p99_ms"].keys() == {"eager", "engine", "slow"}
    engine = document["speedup"]["engine"]
    assert engine["low"] <= engine["median"] <= engine["high"] and document["speedup"].keys() == {"engine", "slow"}


def test_the_plot_has_axes_a_unit_and_a_takeaway() -> None:
    from course_lib import style

    comparison = _compare()
    figure = comparison.plot()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "latency of one call (ms)"
    assert axes.get_title() == f"engine: {comparison.speedups['engine']} the speed of eager"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["slow", "engine", "eager"]
    level = replace(comparison, speedups={"engine": Interval(2.0, 1.8, 2.2), "slow": Interval(1.9, 1.7, 2.1)}).plot()
    assert level.axes[0].get_title() == "engine is not clearly faster than slow"
    speedups = {"c": Interval(1.55, 1.5, 1.6), "a": Interval(2.0, 1.5, 2.5), "b": Interval(1.9, 1.85, 1.95)}
    level = replace(comparison, measurements=dict.fromkeys(speedups, comparison.measurements["slow"]), speedups=speedups).plot()
    assert level.axes[0].get_title() == "a is not clearly faster than c and b", "b is faster than c"
    image = style.png(figure)
    assert image.startswith(b"\x89PNG\r\n\x1a\n") and len(image) > 5000
