"""The meaning of CUDA host API calls on a timeline: which calls block the host, which allocate, and how profilers spell them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace

from course_lib.profiling.timelines.timeline import Event, Kind

# Source: CUDA runtime and driver API references, "API synchronization behavior" and "Memory Management".
_WAIT = re.compile(r"cuda(Device|Stream|Event|Thread)Synchronize|cu(Ctx|Stream|Event)Synchronize")
_COPY = re.compile(r"(cuda|cu)Memcpy(?!.*(Async|Peer))\w*")
# Stream-ordered allocation (cudaMallocAsync, cudaFreeAsync) is missing on purpose: it takes from a pool and waits for nothing.
_ALLOCATION = re.compile(
    r"cuda(Malloc|Free)(Host|Managed|Pitch|Array|3D|3DArray)?|cudaHost(Alloc|Register|Unregister)"
    r"|cuMem(Alloc|Free)(Host|Managed|Pitch)?|cuMemHost(Alloc|Register|Unregister)"
)
_VERSION = re.compile(r"(_ptsz|_ptds)?(_v\d+)?(_ptsz|_ptds)?$")  # cudaMemcpy_v3020, cudaLaunchKernel_ptsz_v7000


def plain_name(name: str) -> str:
    """A call as the program wrote it, without the version that profilers append: ``cudaMalloc_v3020`` -> ``cudaMalloc``."""
    return _VERSION.sub("", name)


def call_kind(name: str) -> Kind:
    """``"sync"`` if the host waits for the device during the call (also for blocking copies), otherwise ``"api"``."""
    return "sync" if _WAIT.fullmatch(name) or _COPY.fullmatch(name) else "api"


def allocates(name: str) -> bool:
    """Whether the call takes memory from the driver or gives it back, which costs up to milliseconds and may wait for the GPU."""
    return bool(_ALLOCATION.fullmatch(name))


def is_cuda_call(name: str) -> bool:
    """Whether this is a call of CUDA and not of the operating system."""
    return bool(re.match(r"cuda[A-Z]|cu[A-Z]", name))


def outermost(calls: Iterable[Event], device_ids: Collection[int | None] = ()) -> list[Event]:
    """The calls that are not inside another call of the same thread. The program made these calls itself.

    Args:
        calls: events of the host; a profiler may record a runtime call, the driver call inside it and a copy of either.
        device_ids: correlation ids of device work. If only the inner call has one of them, the outer call receives it.
    """
    kept: list[Event] = []
    last: dict[str, int] = {}  # of each thread: where its latest outermost call is in `kept`
    for call in sorted(calls, key=lambda call: (call.start_us, -call.duration_us)):
        index = last.get(call.row)
        if index is None or kept[index].end_us < call.end_us:
            last[call.row] = len(kept)
            kept.append(call)
        elif call.correlation in device_ids and kept[index].correlation not in device_ids:
            kept[index] = replace(kept[index], correlation=call.correlation)
    return kept
