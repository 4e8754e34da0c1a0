"""The clock for GPU work on a torch that is played: what is done in which order, and what it says."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from course_lib.benchmark import DeviceClock, compare, measure
from course_lib.errors import EngineError
from course_lib.teaching.benchmarking.noise import Timed


class Torch:
    """What a `DeviceClock` asks of torch; `until` is when the device has nothing left to do."""

    int32 = "int32"

    def __init__(self) -> None:
        self.said: list[str] = []
        self.until = 0.0
        torch = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing

            def record(self) -> None:
                torch.said.append("event")

            def synchronize(self) -> None:
                torch.said.append("wait for it")

            def elapsed_time(self, end: Event) -> float:
                return 0.25

        self.cuda = SimpleNamespace(Event=Event, synchronize=self._wait)

    def empty(self, count: int, dtype: str, device: str) -> Any:
        assert (4 * count, dtype, device) == (256 << 20, "int32", "cuda")
        return SimpleNamespace(zero_=lambda: self.said.append("wipe"))

    def _wait(self) -> None:
        self.said.append("wait for all")
        while time.perf_counter() < self.until:
            pass


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    stand_in = Torch()
    monkeypatch.setitem(sys.modules, "torch", stand_in)  # type: ignore[arg-type]
    return stand_in


def test_the_call_is_between_the_events_behind_the_wipe(torch: Torch) -> None:
    assert DeviceClock()(lambda: torch.said.append("call")) == 0.25
    assert torch.said == ["wait for all", "wipe", "event", "call", "event", "wait for it", "wait for all", "wait for all"]


def test_measure_and_compare_take_it(torch: Torch) -> None:
    clock = DeviceClock()
    found = measure(lambda: torch.said.append("call"), seconds=0, warmup=2, clock=clock)
    assert found.median_ms == 0.25 and len(found.latencies_ms) == 10 and torch.said.count("call") == 12
    subjects = {name: Timed(lambda feeds: torch.said.append("call"), clock) for name in ("one", "other")}
    assert compare(subjects, dict, baseline="one").speedups["other"].median == 1


def test_work_on_another_stream_is_an_error(torch: Torch) -> None:
    def call() -> None:
        torch.until = time.perf_counter() + 0.002

    with pytest.raises(EngineError, match=r"the events say 0\.250 ms"):
        DeviceClock()(call)
