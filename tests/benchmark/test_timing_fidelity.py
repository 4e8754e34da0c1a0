"""benchmarks/timing.py as far as it goes without a GPU: rounds, ratios, verdicts and its file."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

from benchmarks import timing


def noisy(us: float) -> timing.Timer:
    return lambda: us * random.uniform(0.99, 1.01)


def test_a_row_has_medians_and_both_ratios() -> None:
    subject = timing.Subject(
        {"ours_us": noisy(30), "do_bench_us": noisy(30)}, {"ours_in_graph_us": noisy(29), "graph_us": noisy(20)}, 70
    )
    row = timing.agreement(subject)
    assert row["ours_us"] == pytest.approx(30, rel=0.01) and row["graph_us"] == pytest.approx(20, rel=0.01)
    assert row["launches"] == 70
    assert row["over_do_bench"]["low"] <= row["over_do_bench"]["median"] == pytest.approx(1, abs=0.01)
    assert row["over_graph"]["low"] > 1.4, "a disagreement of 45 % is one in the table"
    json.dumps(row)


def test_the_hosts_clock_divides_by_the_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays of 2 ms, one after the other, and 10 us for the synchronization at each end."""
    now = [0.0]

    def passes(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: passes(10e-6))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    assert timing.by_host(lambda: passes(2e-3), launches=10)() == pytest.approx((10 * 2000 + 10) / 10 / 10)


def clock(call: Any) -> float:
    """A microsecond for a thousand numbers, with 5 % of noise."""
    return float(call().numel()) * 1e-6 * random.uniform(0.95, 1.05)


def test_verdicts_by_the_judges_rule() -> None:
    found = {row["pair"]: row for row in timing.verdicts(clock, numbers=1000, repeats=3, device="cpu")}
    assert found["equal"]["tiers"] == {"full": 3} and found["10 % slower"]["tiers"] == {"partial": 3}
    assert found["10 % slower"]["of_reference"]["median"] == pytest.approx(1 / 1.1, rel=0.02)
