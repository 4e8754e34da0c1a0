"""Device events cover one stream. The host's clock, which waits for the whole device, detects work on other streams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from course_lib.errors import EngineError

# So much longer than for an idle device takes the wait for one at work, at least, and so much of the call's own time. Waiting for a
# device that is done still takes longer after longer work: on an H200 0.02 ms more after 0.5 ms of it, and up to 0.14 ms after 55 ms.
NOTICED_MS, NOTICED_SHARE = 0.05, 0.02
_READING_MS, _MOST_RUNS = 2.0, 1000  # of one reading: a shorter one also measures the events and the first launch
_WIPED_BYTES = 256 << 20  # more than any L2 cache: an H200 has 60 MB
_ATTEMPTS = 5  # whatever holds the host up for a moment is not work left behind


def event_ms(timed: Callable[[], float], wait: Callable[[], object]) -> float:
    """The time of a call by device events, after the host's clock has confirmed that no work ran after the last event.

    Args:
        timed: runs the call on an idle device, waits for its last event, and returns the milliseconds between its events.
        wait: returns when the device is idle on all streams.

    Raises:
        EngineError: the device was still working after the last event in each of five calls.
    """
    left = 0.0
    for _ in range(_ATTEMPTS):
        between = timed()
        left = timed_ms(wait) - timed_ms(wait)  # the second time it is idle for sure
        if left <= NOTICED_MS + NOTICED_SHARE * between:
            return between
    raise EngineError(
        f"the events say {between:.3f} ms, and {left:.3f} ms later the GPU was still at work: the call uses a stream that its events "
        "are not on. Let the stream of the call wait for the other one before it returns, and time one call of a process at a time"
    )


def torch_event_ms(torch: Any, call: Callable[[], object], *, before: Callable[[], object] = lambda: None) -> float:
    """`event_ms` of a call that enqueues work on torch's current stream, `before` enqueuing work ahead of the first event."""

    def timed() -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        before()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    return event_ms(timed, torch.cuda.synchronize)


class DeviceClock:
    """Times a call that enqueues work on torch's current stream, between two device events.

    Before the first event, the clock overwrites 256 MiB. The GPU is then busy while the host enqueues the events and the call, so no
    launch latency falls between the two events. It also removes the call's data from the L2 cache. Work that takes longer
    to launch, such as a network of many small kernels, should be timed as a CUDA graph. Every measurement includes the
    time between two events around an empty kernel, so short kernels should be timed many at once, in a CUDA graph.

    Source: the same procedure as ``triton.testing.do_bench``; benchmarks/timing.py sets the two side by side.
    """

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._wiped = torch.empty(_WIPED_BYTES // 4, dtype=torch.int32, device="cuda")

    def __call__(self, call: Callable[[], object]) -> float:
        """Milliseconds of one call.

        Raises:
            EngineError: the call leaves work on another stream than torch's current one.
        """
        return torch_event_ms(self._torch, call, before=self._wiped.zero_)


def runs_in_a_reading(single_ms: float) -> int:
    """How many replays, or calls in a row, lie between two events, when a single one takes so long."""
    return min(_MOST_RUNS, max(1, math.ceil(_READING_MS / max(single_ms, 1e-3))))


def timed_ms(call: Callable[[], object]) -> float:
    """Wall-clock time of one call in milliseconds."""
    started = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - started)
