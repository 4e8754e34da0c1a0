"""Faults that make a pipeline slow, found on its timeline: each with its cost in time, the evidence and a remedy."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from course_lib.errors import ProfileError
from course_lib.profiling.timelines.cuda_calls import allocates
from course_lib.profiling.timelines.intervals import Interval, complement, intersection, total, union
from course_lib.profiling.timelines.timeline import Event, Timeline, time_text

# A remedy that can win less than this share of the span is not worth a change of the program.
SMALLEST_SHARE = 0.05
# A gap up to this long is the price of a launch, longer ones are the host doing something else. A launch by itself takes about
# 5 us; with the framework around it, eager ResNet-50 at batch 1 on an H200 takes 3.3 ms for 175 operators, 19 us each.
LONGEST_LAUNCH_GAP_US = 50.0
# A kernel shorter than the launch of the next one, framework included, leaves the device waiting.
TINY_KERNEL_US = 20.0
# Fewer tiny kernels than this cannot be worth a CUDA graph.
FEWEST_TINY_KERNELS = 20
# What happens once or twice is a beginning or an end; a loop does it again.
FEWEST_REPEATS = 3
# The driver sends up to this much along with the command itself, so pinning it gains nothing (a scalar read back, say).
# Source: CUDA Runtime API, "API synchronization behavior": transfers of 64 KB or less.
SMALLEST_COPY_BYTES = 64 * 1024 + 1

# Of each fault: the technique that removes it, and what to do.
REMEDIES: Mapping[str, tuple[str, str]] = {
    "idle GPU": (
        "overlap of host and device",
        "Prepare the next batch while the device works on this one (another thread, a queue, two streams), or move the "
        "preparation to the device.",
    ),
    "pageable copies": (
        "pinned memory and asynchronous copies",
        "Keep the buffers on the host in pinned memory and copy without blocking, so that the device reads them directly while "
        "kernels run.",
    ),
    "blocking calls": (
        "asynchronous copies and one wait at the end",
        "Take the wait out of the loop: read results back without blocking and wait for an event where they are needed; "
        "`.item()`, `.cpu()` and printing a tensor wait too.",
    ),
    "tiny kernels": (
        "fusion or a CUDA graph",
        "Let a compiler fuse the small operations (TensorRT, torch.compile), or record the step as a CUDA graph and launch it "
        "as one.",
    ),
    "repeated allocation": (
        "buffers allocated once",
        "Allocate every buffer before the loop and reuse it, or take it from a pool (cudaMallocAsync, PyTorch's allocator).",
    ),
}


@dataclass(frozen=True)
class Fault:
    """One cause of lost time. Two faults can share lost time: a host that waits and then works leaves one gap with two causes.

    Attributes:
        name: a key of `REMEDIES`.
        finding: the evidence, with numbers.
        remedy: the technique, such as ``"pinned memory"``.
        advice: what to do, in one sentence.
        lost: intervals in which the device waited, or did work that the remedy shortens, in order; microseconds.
        share: share of the span, 0 to 1. It is the largest possible gain of the remedy.
        events: the calls, copies or kernels that show it.
    """

    name: str
    finding: str
    remedy: str
    advice: str
    lost: tuple[Interval, ...]
    share: float
    events: tuple[Event, ...]

    def __str__(self) -> str:
        return f"{self.name} ({100 * self.share:.0f} % of the time): {self.finding} Remedy: {self.remedy}. {self.advice}"


def find_faults(timeline: Timeline) -> tuple[Fault, ...]:
    """The faults of a steady loop, the costliest first; none if the device is busy all the time with kernels longer than their launch.

    Only the time from the first to the last device work counts, because work before and after it is not part of the loop.
    If the recording also holds the warm-up, use a `window`.

    Raises:
        ProfileError: the recording lacks the device's work, so nothing can be said.

    Source: the rules of ``nsys analyze`` (gpu_gaps, cuda_memcpy_async, cuda_memcpy_sync, cuda_api_sync), with the thresholds of
    this module, which are meant for inference steps of milliseconds.
    """
    work = timeline.device_events
    if not work:
        if timeline.lacks:
            raise ProfileError(timeline.lacks)
        return ()
    loop = timeline.window(max(timeline.start_us, work[0].start_us), min(timeline.end_us, max(event.end_us for event in work)))
    found = [check(loop) for check in (_idle, _pageable, _blocking, _tiny, _allocation)]
    return tuple(sorted((fault for fault in found if fault), key=lambda fault: -fault.share))


def _idle(loop: Timeline) -> Fault | None:
    gaps = loop.gaps(LONGEST_LAUNCH_GAP_US)
    if not gaps:
        return None
    longest = max(gaps, key=lambda gap: gap[1] - gap[0])
    activity = loop.host_activity(*longest)
    ends = {end for _, end in gaps}
    finding = (
        f"the device had nothing to do in {_count(gaps, 'gap')} of {time_text(LONGEST_LAUNCH_GAP_US)} or more, the longest "
        f"{time_text(longest[1] - longest[0])}" + (f" while the host ran {activity}." if activity else ".")
    )
    return _fault(loop, "idle GPU", finding, gaps, (event for event in loop.device_events if event.start_us in ends))


def _pageable(loop: Timeline) -> Fault | None:
    pageable = (event for event in loop.events if event.kind == "copy" and event.pageable and event.duration_us)
    copies = [copy for copy in pageable if (copy.bytes_moved or 0) >= SMALLEST_COPY_BYTES]
    if not copies:
        return None
    computing = union((event.start_us, event.end_us) for event in loop.events if event.kind in ("kernel", "graph"))
    alone = complement(computing, loop.start_us, loop.end_us)
    copying = union((copy.start_us, copy.end_us) for copy in copies)
    moved, taken = sum(copy.bytes_moved or 0 for copy in copies), sum(copy.duration_us for copy in copies)
    finding = (
        f"{_count(copies, 'copy', 'copies')} to or from pageable memory moved {moved / 1e6:,.1f} MB in {time_text(taken)}, "
        f"{moved / 1e3 / taken:.1f} GB/s."
    )
    return _fault(loop, "pageable copies", finding, intersection(copying, alone), copies)


def _blocking(loop: Timeline) -> Fault | None:
    gaps = loop.gaps()
    starts = [start for start, _ in gaps]
    dry: dict[Interval, Event] = {}
    for wait in (event for event in loop.events if event.kind == "sync"):
        index = bisect_right(starts, wait.end_us) - 1
        # the device ran dry during the call, so whatever the host does next starts from an empty queue
        if index >= 0 and wait.end_us <= gaps[index][1]:
            dry[gaps[index]] = wait
    if len(dry) < FEWEST_REPEATS:
        return None
    finding = f"the host waited until the device had nothing left to do: {_names(dry.values())}."
    return _fault(loop, "blocking calls", finding, dry, dry.values())


def _tiny(loop: Timeline) -> Fault | None:
    kernels = loop.kernels
    # kernels of one CUDA graph share the number of its launch: they were not launched one by one
    together = {number for number, count in Counter(kernel.correlation for kernel in kernels).items() if count > 1} - {None}
    tiny = {k.start_us: k for k in kernels if k.duration_us < TINY_KERNEL_US and k.correlation not in together}
    middle = median(kernel.duration_us for kernel in kernels) if kernels else 0.0
    if len(tiny) < FEWEST_TINY_KERNELS or middle >= TINY_KERNEL_US:
        return None

    def waited_for_launch(gap: Interval) -> bool:
        call = loop.call_of(tiny[gap[1]])
        return call is None or call.end_us >= gap[0]

    short = (gap for gap in loop.gaps() if gap[1] - gap[0] < LONGEST_LAUNCH_GAP_US and gap[1] in tiny)
    finding = (
        f"{len(tiny)} of {len(kernels)} kernels are launched one by one and take less than {time_text(TINY_KERNEL_US)} "
        f"(median of all: {time_text(middle)}), so the device waits for their launches."
    )
    return _fault(loop, "tiny kernels", finding, filter(waited_for_launch, short), tiny.values())


def _allocation(loop: Timeline) -> Fault | None:
    calls = [event for event in loop.events if event.kind == "api" and allocates(event.name)]
    if len(calls) < FEWEST_REPEATS:
        return None
    finding = f"memory was taken from the driver or given back between kernels: {_names(calls)}."
    lost = intersection(union((call.start_us, call.end_us) for call in calls), loop.gaps())
    return _fault(loop, "repeated allocation", finding, lost, calls)


def _fault(loop: Timeline, name: str, finding: str, lost: Iterable[Interval], events: Iterable[Event]) -> Fault | None:
    """The fault, unless it costs too little to mention."""
    lost = tuple(lost)
    share = total(lost) / loop.span_us if loop.span_us else 0.0
    return Fault(name, finding, *REMEDIES[name], lost, share, tuple(events)) if share >= SMALLEST_SHARE else None


def _names(events: Iterable[Event]) -> str:
    counts = Counter(event.name for event in events).most_common()
    return ", ".join(f"{name} {count} times" for name, count in counts)


def _count(things: Iterable[object], one: str, many: str = "") -> str:
    number = len(tuple(things))
    return f"{number} {one if number == 1 else many or one + 's'}"
