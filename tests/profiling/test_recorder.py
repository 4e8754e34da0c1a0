"""A recorded program: what was named is on the timeline, with the times that it really took."""

import threading
import time

import pytest

from course_lib import style
from course_lib.errors import ProfileError
from course_lib.profiling import Event, KernelMetrics, Timeline
from course_lib.profiling.timelines.recorder import Recorder
from course_lib.teaching.profiling import REST, at_most, draw_occupancy, draw_steps, range_ms


def test_ranges_and_work_stand_on_their_rows_with_their_times():
    recorder = Recorder("chip")
    with recorder.span("step"):
        time.sleep(0.02)
        with recorder.span("read"), recorder.work("infer"):
            time.sleep(0.03)
    timeline = recorder.timeline()
    found = {event.name: event for event in timeline.events}
    assert [found[name].kind for name in ("step", "read", "infer")] == ["range", "range", "kernel"]
    assert found["infer"].row == "chip" and found["step"].row == threading.current_thread().name
    assert 30e3 <= found["infer"].duration_us <= found["read"].duration_us < found["step"].duration_us
    assert timeline.span_us == pytest.approx(found["step"].duration_us)  # idle time at the edges counts
    assert timeline.busy_us == pytest.approx(found["infer"].duration_us)


def test_a_range_that_fails_is_recorded_and_the_error_goes_on():
    recorder = Recorder()
    assert recorder.timeline().events == ()
    with pytest.raises(RuntimeError, match="no frame"), recorder.span("step"):
        raise RuntimeError("no frame")
    assert [event.name for event in recorder.timeline().events] == ["step"]


def test_threads_have_rows_of_their_own():
    recorder = Recorder()

    def named():
        with recorder.span("load"):
            pass

    thread = threading.Thread(target=named, name="loader")
    thread.start()
    thread.join()
    named()
    assert {event.row for event in recorder.timeline().events} == {"loader", threading.current_thread().name}


def steps():
    """Two steps of 10 and 14 ms; 'a' takes 4 and 8, 'b' 5 in the second alone."""
    spans = [("step", 0, 10), ("a", 0, 4), ("step", 20, 14), ("a", 20, 8), ("b", 28, 5)]
    return Timeline(tuple(Event(name, "range", 1e3 * start, 1e3 * ms, "main") for name, start, ms in spans))


def test_the_mean_of_each_range_over_the_steps_and_amdahl():
    parts = range_ms(steps(), "step")
    assert parts == {"a": 6.0, "b": 2.5, REST: 3.5}
    assert at_most(parts, "a") == 2.0 and at_most({"all": 3.0}, "all") == float("inf")
    with pytest.raises(ProfileError, match=r"no range 'frame', only a, b, step"):
        range_ms(steps(), "frame")


def test_the_bars_add_up_and_the_title_compares_first_and_last():
    figure = draw_steps({"first": {"a": 6.0, REST: 2.0}, "last": {"a": 1.0, REST: 1.0}}, "frame")
    assert figure.axes[0].get_title() == "A frame took 8.0 ms and takes 2.0 ms: 4.0 times the speed"
    assert [text.get_text() for text in figure.axes[0].texts] == ["8.00 ms", "2.00 ms"]
    assert style.png(figure).startswith(b"\x89PNG")
    assert draw_steps({"first": {"a": 6.0, REST: 2.0}}, "frame").axes[0].get_title() == "A frame took 8.0 ms"


def test_occupancy_names_the_kernel_that_computes_most():
    kernels = [
        KernelMetrics("void add<float>(int)", 5, dram_share=0.9, sm_share=0.1, occupancy=0.8),
        KernelMetrics("a_matrix_product_with_a_name_that_is_far_too_long", 9, dram_share=0.2, sm_share=0.95, occupancy=0.1),
        KernelMetrics("unmeasured", 1),
    ]
    figure = draw_occupancy(kernels)
    assert figure.axes[0].get_title() == "The kernel that computes most (95 % of the peak) has an occupancy of 10 %"
    rows = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert len(rows) == 2 and rows[0] == "1  add\n(memory-bound)" and "…" in rows[1] and rows[1].endswith("\n(compute-bound)")
    assert style.png(figure).startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no kernel has occupancy"):
        draw_occupancy(kernels[2:])
