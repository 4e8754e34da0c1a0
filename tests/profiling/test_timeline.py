"""Timelines: busy time and gaps against counting microsecond by microsecond, what the host did, tables and pictures."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.collections import PolyCollection

from course_lib import style
from course_lib.profiling.timelines.intervals import complement, intersection, total, union
from course_lib.profiling.timelines.timeline import DEVICE_KINDS, Event, Timeline, label, time_text
from course_lib.profiling.timelines.timeline_figure import draw_timeline


def kernel(start, duration, row="stream 7", name="k", **more):
    return Event(name, "kernel", start, duration, row, **more)


STEP = Timeline(
    (
        Event("step", "range", 0, 100, "thread 1"),
        Event("preprocess", "range", 30, 40, "thread 1"),
        Event("cudaLaunchKernel", "api", 5, 4, "thread 1", correlation=1),
        kernel(10, 20, correlation=1),
        Event("cudaStreamSynchronize", "sync", 12, 20, "thread 1"),
        Event("poll", "api", 0, 100, "thread 2"),
        Event("cudaLaunchKernel", "api", 71, 4, "thread 1", correlation=2),
        kernel(80, 20, correlation=2),
    )
)

# whole microseconds up to 60, so that counting them one by one is exact
spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair))), max_size=12)


def cells(intervals):
    """The microseconds that intervals with whole ends cover."""
    return {cell for start, end in intervals for cell in range(start, end)}


@given(spans, st.integers(0, 60), st.integers(0, 60))
def test_union_and_complement_agree_with_counting(intervals, start, end):
    joined = union(intervals)
    assert total(joined) == len(cells(intervals))
    assert cells(joined) == cells(intervals)
    assert all(before[1] < after[0] for before, after in pairwise(joined))
    assert cells(complement(joined, start, end)) == set(range(start, end)) - cells(intervals)


@given(spans, spans)
def test_intersection_agrees_with_counting(first, second):
    assert cells(intersection(union(first), union(second))) == cells(first) & cells(second)


@given(
    st.lists(
        st.tuples(st.floats(0, 1e4), st.floats(0, 300), st.sampled_from(sorted(DEVICE_KINDS)), st.integers(1, 3)), max_size=40
    )
)
def test_busy_time_is_what_a_sweep_over_the_ends_counts(rows):
    timeline = Timeline(tuple(Event("e", kind, start, length, f"stream {stream}") for start, length, kind, stream in rows))
    running, last, expected = 0, 0.0, 0.0
    for time, change in sorted([(e.start_us, 1) for e in timeline.events] + [(e.end_us, -1) for e in timeline.events]):
        expected += (time - last) if running > 0 else 0.0
        running, last = running + change, time
    assert timeline.busy_us == pytest.approx(expected, abs=1e-6)
    assert timeline.busy_us + sum(end - start for start, end in timeline.gaps()) == pytest.approx(timeline.span_us, abs=1e-6)


def test_the_span_is_the_devices_and_without_device_work_the_hosts():
    assert (STEP.start_us, STEP.end_us) == (10, 100)
    host = Timeline(tuple(event for event in STEP.events if not event.on_device))
    assert (host.start_us, host.end_us, host.busy_us) == (0, 100, 0)
    assert (Timeline(()).span_us, Timeline(()).gaps()) == (0, ())


def test_a_window_keeps_whole_what_reaches_into_it():
    window = STEP.window(25, 28)
    assert {event.name for event in window.events} == {"step", "k", "cudaStreamSynchronize", "poll", "cudaLaunchKernel"}
    assert window.busy_us == 3
    assert window.kernels[0].duration_us == 20
    assert window.call_of(window.kernels[0]).end_us == 9  # before the window, and the only call kept from there
    assert window.call_of(kernel(0, 1)) is None and len(window.events) == 5
    assert [row.total_us for row in STEP.summary()] == sorted((row.total_us for row in STEP.summary()), reverse=True)


@pytest.mark.parametrize(
    ("gap", "activity"),
    [
        ((30, 32), "cudaStreamSynchronize"),  # most of it
        ((30, 80), "its own code in 'preprocess'"),  # the innermost range; thread 2 did not launch what follows
        ((70, 80), "its own code in 'step'"),
        ((200, 300), "its own code"),
    ],
)
def test_what_the_host_did_is_that_of_the_launching_thread(gap, activity):
    timeline = Timeline((*STEP.events, Event("read", "api", 500, 1, "thread 1", correlation=3), kernel(501, 1, correlation=3)))
    assert timeline.host_activity(*gap) == activity


def test_without_a_call_every_thread_counts_and_without_a_host_nothing_is_said():
    assert Timeline((kernel(0, 10), kernel(50, 10), Event("read", "api", 12, 36, "thread 9"))).host_activity(10, 50) == "read"
    assert (
        Timeline((kernel(0, 10), kernel(50, 10), Event("aten::sort", "op", 12, 36, "thread 9"))).host_activity(10, 50)
        == "aten::sort"
    )
    assert Timeline((kernel(0, 10), kernel(50, 10))).host_activity(10, 50) == ""


def test_the_headline_names_the_longest_gap():
    assert STEP.headline() == "GPU busy 44 % of 90 us; longest gap 50 us while the host ran its own code in 'preprocess'"
    assert Timeline((kernel(0, 10),)).headline() == "GPU busy 100 % of 10 us"
    assert Timeline((kernel(0, 10), kernel(20, 10))).headline() == "GPU busy 67 % of 30 us; longest gap 10 us"
    assert Timeline(()).headline() == "No device work in 0 us"
    assert Timeline((kernel(5, 0),)).headline() == "GPU busy 100 % of 0 us"


def test_the_table_escapes_names_and_says_what_it_leaves_out():
    html = Timeline(tuple(kernel(i, 1, name=f"void n::k{i}<a & b>(int)") for i in range(30)))._repr_html_()
    assert html.count("<tr") == 21
    assert "10 more names not shown" in html
    assert re.search(r'<tr title="void n::k0&lt;a &amp; b&gt;\(int\)"><td [^>]*>k0</td>', html)


def test_what_is_no_time_is_rejected():
    for start, duration in ((float("nan"), 1), (float("inf"), 1), (0, -1), (0, float("nan")), (0, float("inf"))):
        with pytest.raises(ValueError, match="not a time"):
            kernel(start, duration)
    with pytest.raises(ValueError, match="kind"):
        Event("e", "wait", 0, 1, "thread 1")
    with pytest.raises(ValueError, match="before it starts"):
        Timeline((), (2, 1))
    with pytest.raises(ValueError, match="no events"):
        draw_timeline(Timeline(()))
    with pytest.raises(ValueError, match="zoom"):
        draw_timeline(STEP, start_us=50, end_us=40)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 us"),
        (0.384, "0.384 us"),
        (999.4, "999 us"),
        (999.6, "1 ms"),
        (2.5e6, "2.5 s"),
    ],
)
def test_durations_have_three_digits_and_a_unit(microseconds, text):
    assert time_text(microseconds) == text


@pytest.mark.parametrize(
    ("name", "kind", "short"),
    [
        ("void at::native::(anonymous namespace)::copy_kernel<4, at::f<int>>(int, float*)", "kernel", "copy_kernel"),
        ("saxpy(double *, int)", "kernel", "saxpy"),
        ("<<<>>>", "kernel", "<<<>>>"),
        ("aten::mul", "op", "aten::mul"),
        ("Memcpy HtoD (Pageable -> Device)", "copy", "Memcpy HtoD (Pageable -> Device)"),
    ],
)
def test_kernels_have_a_short_name(name, kind, short):
    assert label(name, kind) == short


# the picture


def bars(figure):
    """Bars drawn, over all rows, without the shading of gaps."""
    return [path for drawn in figure.axes[0].collections if drawn.get_zorder() > 0 for path in drawn.get_paths()]


def row_names(figure):
    return [tick.get_text() for tick in figure.axes[0].get_yticklabels()]


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_rows_are_ranges_by_depth_calls_by_thread_and_streams():
    figure = draw_timeline(STEP)
    axes = figure.axes[0]
    assert row_names(figure) == ["ranges", "", "calls, thread 1", "calls, thread 2", "stream 7"]
    shaded = [drawn for drawn in axes.collections if isinstance(drawn, PolyCollection) and drawn.get_zorder() == 0]
    assert len(shaded) == 1 + 2  # the gap and the margins on both sides
    assert axes.get_xlabel() == "time (us)" and axes.get_title(loc="left") == STEP.headline()
    assert style.png(figure).startswith(b"\x89PNG")
    zoom = draw_timeline(STEP, start_us=10, end_us=40, device="engine")
    assert zoom.axes[0].get_xlim() == (10, 40) and zoom.axes[0].get_title(loc="left").startswith("engine busy 67 % of 30 us")
    assert {"engine busy", "engine idle"} < set(legend(zoom))


def test_thousands_of_events_become_as_many_bars_as_there_are_pixels():
    many = Timeline(tuple(kernel(3 * i, 2) for i in range(50_000)))
    assert len(bars(draw_timeline(many))) < 10
    assert "low bars" in draw_timeline(many).axes[0].get_xlabel()  # a third of the time is pauses that no pixel shows
    sparse = Timeline(tuple(kernel(1000 * i, 2) for i in range(300)))
    assert len(bars(draw_timeline(sparse))) == 300
    assert draw_timeline(sparse).axes[0].get_xlabel() == "time (ms)"


def test_more_threads_than_fit_are_counted():
    crowd = Timeline(tuple(Event("poll", "api", i, 20 + i, f"thread {i}") for i in range(12)))
    figure = draw_timeline(crowd)
    assert row_names(figure) == [f"calls, thread {i}" for i in range(4, 12)]  # the busiest, in order of their number
    assert "4 more rows are not drawn" in figure.axes[0].get_xlabel()


def test_long_timelines_are_in_milliseconds_and_pageable_copies_have_their_own_color():
    copies = Timeline((Event("c", "copy", 0, 900, "stream 7", pageable=True), Event("c", "copy", 1000, 900, "stream 7")))
    figure = draw_timeline(copies)
    assert figure.axes[0].get_xlabel() == "time (ms)"
    assert legend(figure) == ["copy", "pageable copy", "GPU idle"]
