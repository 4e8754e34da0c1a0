"""Work that device events do not see, on a device that is played: what the host's clock sees of it is an error, and nothing else is."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from course_lib.engines import ModelSource, load
from course_lib.engines.cuda import stream as cuda_stream
from course_lib.engines.cuda import two_clocks
from course_lib.errors import EngineError

SAID = r"^the events say 1\.500 ms, and \d\.\d\d\d ms later the GPU was still at work"


class Clock:
    """A clock that is played as well: a busy machine would add to a real one."""

    now = 0.0

    def perf_counter(self) -> float:
        self.now += 1e-7
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_clocks, "time", CLOCK)


class Device:
    """One that is at work for a while after its events; `hidden_ms` of each call in turn, then none."""

    def __init__(self, *hidden_ms: float) -> None:
        self._hidden: Iterator[float] = iter(hidden_ms)
        self._until, self.calls = 0.0, 0

    def call(self) -> None:
        self.calls += 1
        self._until = CLOCK.now + next(self._hidden, 0.0) / 1e3

    def timed(self) -> float:
        self.call()
        return 1.5

    def wait(self) -> None:
        CLOCK.now = max(CLOCK.now, self._until)


def test_work_that_outlasts_the_events_is_an_error() -> None:
    device = Device(*[2.0] * 5)
    with pytest.raises(EngineError, match=SAID) as raised:
        two_clocks.event_ms(device.timed, device.wait)
    assert device.calls == 5 and len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(("hidden_ms", "calls"), [((), 1), ((3.0, 3.0), 3)])
def test_what_holds_the_host_up_now_and_then_is_no_error(hidden_ms: tuple[float, ...], calls: int) -> None:
    device = Device(*hidden_ms)
    assert two_clocks.event_ms(device.timed, device.wait) == 1.5 and device.calls == calls
    assert two_clocks.event_ms(lambda: 1.5, lambda: CLOCK.sleep(0.002)) == 1.5, "a host that is slow to ask"


def test_the_wait_after_long_work_takes_longer_and_is_no_error() -> None:
    waits = iter([0.00014, 0.0] * 5)
    assert two_clocks.event_ms(lambda: 55.0, lambda: CLOCK.sleep(next(waits, 0.0))) == 55.0


# ---- the engines' clocks


class Driver:
    """libcuda as far as a `CudaStream` asks for it: events are 1.5 ms apart, whatever goes on elsewhere."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            if name == "cuEventElapsedTime":
                arguments[0]._obj.value = 1.5
            if name == "cuCtxSynchronize":
                self._device.wait()
            return 0

        return call


@pytest.mark.parametrize("hides", [False, True])
def test_of_a_stream(monkeypatch: pytest.MonkeyPatch, hides: bool) -> None:
    device = Device(*[2.0] * 5 * hides)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(device))
    stream = cuda_stream.CudaStream()
    if not hides:
        assert stream.time_ms(device.call) == 1.5
        return
    with pytest.raises(EngineError, match=SAID):
        stream.time_ms(device.call)


class Event:
    """One of torch's."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: Event) -> float:
        return 1.5


@pytest.mark.parametrize("hides", [False, True])
def test_of_an_engine_of_torchs(monkeypatch: pytest.MonkeyPatch, hides: bool) -> None:
    engine: Any = load(ModelSource("course_lib.models:classifier", ("small",)))
    device, feeds = Device(*[2.0] * 5 * hides), {"image": np.zeros((1, 1, 32, 32), np.float32)}
    monkeypatch.setattr(engine, "_prepare", lambda tensors: device.call)
    monkeypatch.setattr(engine, "_device", "cuda")
    monkeypatch.setattr(engine, "_to_device", lambda feeds: [])
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", device.wait)
    if not hides:
        assert engine.time_ms(feeds) == 1.5
        return
    with pytest.raises(EngineError, match=SAID):
        engine.time_ms(feeds)
