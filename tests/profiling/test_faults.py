"""Faults planted in timelines made by hand: each is found with the time that it cost, and none where there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.benchmark.records import RESULTS
from course_lib.profiling import faults
from course_lib.profiling.faults import find_faults
from course_lib.profiling.readers.nsys import read_nsys
from course_lib.profiling.timelines.intervals import total
from course_lib.profiling.timelines.timeline import DEVICE_KINDS, Event, Timeline

THREAD, STREAM = "thread 1", "stream 7"
MEGABYTE = 1 << 20


class Loop:
    """Builds a timeline step by step, as one host thread and one stream would leave it behind."""

    def __init__(self):
        self.events, self.host, self.device, self.number = [], 0.0, 0.0, 0

    def work(self, duration, kind="kernel", *, launch=5.0, latency=2.0, **more):
        """A launch by the host, then device work as soon as the launch has arrived and the device is free."""
        self.number += 1
        self.events.append(Event("launch", "api", self.host, launch, THREAD, correlation=self.number))
        self.host += launch
        self.device = max(self.device, self.host + latency)
        self.events.append(Event(kind, kind, self.device, duration, STREAM, correlation=self.number, **more))
        self.device += duration

    def call(self, name, duration, kind="api"):
        self.events.append(Event(name, kind, self.host, duration, THREAD))
        self.host += duration

    def wait(self):
        """Until the device is done."""
        self.call("cudaStreamSynchronize", max(self.device - self.host, 0.0) + 3, "sync")

    def think(self, duration, name="preprocess"):
        self.events.append(Event(name, "range", self.host, duration, THREAD))
        self.host += duration

    @property
    def faults(self):
        return {fault.name: fault for fault in find_faults(Timeline(tuple(self.events)))}


def clean(steps=10):
    """Work is queued ahead of the device; pinned copies; one wait at the end."""
    loop = Loop()
    for _ in range(steps):
        loop.work(100, "copy", bytes_moved=MEGABYTE)
        for _ in range(10):
            loop.work(60)
    loop.wait()
    return loop


def test_a_clean_timeline_has_no_fault():
    assert clean().faults == {}


def test_host_work_between_launches_is_found_with_its_duration_and_its_name():
    loop = Loop()
    for _ in range(10):
        loop.think(500)
        loop.work(300)
    (fault,) = loop.faults.values()
    assert fault.name == "idle GPU"
    # the device rests from the end of a kernel until the next launch arrives: 500 + 5 + 2 - 300 - (5 + 2 - 5)
    assert [end - start for start, end in fault.lost] == [pytest.approx(205)] * 9
    assert total(fault.lost) == pytest.approx(9 * 205)
    assert fault.share == pytest.approx(9 * 205 / (10 * 300 + 9 * 205))
    assert "9 gaps of 50 us or more, the longest 205 us while the host ran its own code in 'preprocess'" in fault.finding
    assert len(fault.events) == 9


def test_pageable_copies_are_found_with_the_time_that_no_kernel_covers():
    loop = clean()
    start = loop.device
    loop.events += [
        Event("copy", "copy", start, 1000, STREAM, 4 * MEGABYTE, pageable=True),
        Event("k", "kernel", start + 900, 300, "stream 8"),
    ]
    (fault,) = loop.faults.values()
    assert fault.name == "pageable copies"
    assert fault.lost == ((start, start + 900),)
    assert "1 copy to or from pageable memory moved 4.2 MB in 1 ms, 4.2 GB/s" in fault.finding
    assert "pinned" in fault.remedy


def test_scalars_pinned_copies_and_covered_copies_are_no_fault():
    loop = clean()
    start = loop.device
    loop.events += [
        Event("copy", "copy", start, 1000, STREAM, 64 * 1024, pageable=True),
        Event("copy", "copy", start + 1000, 1000, STREAM, MEGABYTE),
        Event("copy", "copy", start + 2000, 1000, STREAM, MEGABYTE, pageable=True),
        Event("k", "kernel", start + 2000, 1000, "stream 8"),
    ]
    assert loop.faults == {}


def test_a_wait_in_every_step_is_found_and_the_last_one_is_not():
    loop = Loop()
    for _ in range(10):
        loop.work(100)
        loop.wait()
        loop.think(30)
    (fault,) = loop.faults.values()
    assert fault.name == "blocking calls"
    assert len(fault.lost) == len(fault.events) == 9
    assert [end - start for start, end in fault.lost] == [pytest.approx(3 + 30 + 5 + 2)] * 9
    assert "cudaStreamSynchronize 9 times" in fault.finding


def test_a_wait_that_leaves_the_device_with_work_is_no_fault():
    loop = Loop()
    for _ in range(10):
        loop.work(500)
        loop.work(500)
        loop.call("cudaEventSynchronize", 900, "sync")  # for the step before; this one is still queued
    assert loop.faults == {}


def test_tiny_kernels_launched_one_by_one_are_found():
    loop = Loop()
    for _ in range(50):
        loop.work(2, launch=8)
    (fault,) = loop.faults.values()
    assert fault.name == "tiny kernels"
    assert total(fault.lost) == pytest.approx(49 * 6)  # a launch every 8 us, 2 us of work each
    assert "50 of 50 kernels" in fault.finding
    assert "CUDA graph" in fault.remedy


def test_the_same_kernels_in_a_graph_are_no_fault():
    events = [Event("cudaGraphLaunch", "api", 0, 20, THREAD, correlation=1)]
    events += [Event("k", "kernel", 25 + 3 * i, 2, STREAM, correlation=1) for i in range(50)]
    assert find_faults(Timeline(tuple(events))) == ()


def test_short_kernels_that_were_queued_in_time_are_no_fault():
    """The gaps between them are the device's own: every launch had returned long before."""
    events = []
    for i in range(50):
        events.append(Event("launch", "api", 5 * i, 4, THREAD, correlation=i))
        events.append(Event("k", "kernel", 300 + 12 * i, 10, STREAM, correlation=i))
    assert find_faults(Timeline(tuple(events))) == ()


def test_without_calls_the_gaps_before_short_kernels_count():
    kernels = [Event("k", "kernel", 10 * i, 2, STREAM) for i in range(50)]
    (fault,) = find_faults(Timeline(tuple(kernels)))
    assert (fault.name, total(fault.lost)) == ("tiny kernels", 49 * 8)


def test_allocation_in_the_loop_is_found():
    loop = Loop()
    for _ in range(10):
        loop.call("cudaMalloc", 30)
        loop.work(20)
        loop.call("cudaFree", 15)
    fault = loop.faults["repeated allocation"]
    assert "cudaMalloc 9 times" in fault.finding
    assert 0.05 < fault.share < 1
    assert all(any(call.start_us <= start and end <= call.end_us + 30 for call in fault.events) for start, end in fault.lost)


def test_stream_ordered_allocation_and_allocation_before_the_loop_are_no_fault():
    loop = Loop()
    for _ in range(5):
        loop.call("cudaMalloc", 400)
    for _ in range(10):
        loop.call("cudaMallocAsync", 2)
        loop.work(100)
    assert loop.faults == {}


def test_faults_come_costliest_first_and_print_in_one_line():
    loop = Loop()
    for _ in range(10):
        loop.work(300, "copy", bytes_moved=MEGABYTE, pageable=True)
        loop.work(100)
        loop.wait()
        loop.think(400)
    found = find_faults(Timeline(tuple(loop.events)))
    assert {fault.name for fault in found} == {"idle GPU", "blocking calls", "pageable copies"}
    assert [fault.share for fault in found] == sorted((fault.share for fault in found), reverse=True)
    for fault in found:
        assert fault.name in faults.REMEDIES
        assert "\n" not in str(fault)
        assert fault.remedy in str(fault)


def test_a_window_is_judged_alone():
    loop = clean()
    border = loop.device + 100
    loop.host = border
    for _ in range(10):
        loop.think(500)
        loop.work(100)
    timeline = Timeline(tuple(loop.events))
    assert {fault.name for fault in find_faults(timeline.window(border, timeline.end_us))} == {"idle GPU"}
    assert find_faults(timeline.window(timeline.start_us, border)) == ()


def test_the_real_report_waits_for_every_copy_and_for_its_host():
    real = RESULTS / "nsys" / "saxpy_mpi_cuda.sqlite"
    found = {fault.name: fault for fault in find_faults(read_nsys(real))}
    assert set(found) == {"idle GPU", "blocking calls", "pageable copies"}
    assert len(found["pageable copies"].events) == 15
    assert found["idle GPU"].share == pytest.approx(0.66, abs=0.01)


times = st.floats(0.5, 2000)
any_event = st.builds(
    Event,
    st.sampled_from(["cudaMalloc", "cudaFree", "k"]),
    st.sampled_from([*sorted(DEVICE_KINDS), "api", "sync", "op", "range"]),
    times,
    times,
    st.sampled_from([THREAD, STREAM]),
    st.none() | st.integers(0, 1 << 30),
    st.booleans(),
    st.none() | st.integers(0, 5),
)


@given(st.lists(any_event, max_size=60))
def test_whatever_is_recorded_losses_lie_within_the_span(events):
    timeline = Timeline(tuple(events))
    for fault in find_faults(timeline):
        assert faults.SMALLEST_SHARE <= fault.share <= 1 + 1e-9
        assert total(fault.lost) == pytest.approx(fault.share * timeline.span_us)
        assert all(timeline.start_us <= start < end <= timeline.end_us for start, end in fault.lost)
        assert fault.events
