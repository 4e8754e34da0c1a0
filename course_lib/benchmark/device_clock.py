"""Time of the kernels of a call on a GPU, without their launches and with cold caches."""

from __future__ import annotations

from collections.abc import Callable

from course_lib.engines.cuda import two_clocks

_WIPED_BYTES = 256 << 20  # more than any L2 cache: an H200 has 60 MB


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
        return two_clocks.torch_event_ms(self._torch, call, before=self._wiped.zero_)
