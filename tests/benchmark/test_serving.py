"""Throughput of threads, and queues on the real clock: what must hold however busy the machine is."""

from __future__ import annotations

import mmap
import threading
import time

import numpy as np
import pytest

from course_lib import style
from course_lib.benchmark.serving import Served, resident_mib, serve, throughputs
from course_lib.teaching.runtime import queues


def sleeps(ms):
    return lambda *_: time.sleep(ms / 1e3)


def test_threads_that_wait_beside_one_another_do_more_and_a_lock_undoes_it():
    lock = threading.Lock()

    def locked():
        with lock:
            time.sleep(0.02)

    found = throughputs({"one": [sleeps(20)], "four": [sleeps(20)] * 4, "locked": [locked] * 4}, seconds=0.25, rounds=2)
    assert found["one"] <= 50 * 1.01 and found["locked"] <= 50 * 1.01
    assert found["four"] > 1.5 * max(found["one"], found["locked"])


def test_a_call_that_fails_is_not_counted_as_fast():
    def fails():
        raise RuntimeError("no device")

    with pytest.raises(RuntimeError, match="no device"):
        throughputs({"broken": [fails]}, seconds=0.01, rounds=1)


def test_resident_memory_grows_with_what_is_written():
    # A new mapping: malloc may hand out pages that an earlier test freed and that are still resident.
    with mmap.mmap(-1, 64 << 20) as kept:
        before = resident_mib()
        kept.write(b"1" * len(kept))
        assert 55 < resident_mib() - before < 150


def test_without_a_limit_nothing_is_lost_and_the_line_grows():
    served = serve(sleeps(8), frames=30, period_ms=1)
    assert served.lost_share == 0
    assert served.latency_ms[-1] > 20 * 8 * 0.8 > served.latency_ms[0]
    assert served.waiting[-1] > served.waiting[3]
    assert served.worst_ms == served.latency_ms.max()


def test_the_oldest_or_the_newest_is_lost_when_there_is_no_room():
    oldest = serve(sleeps(30), frames=20, period_ms=1, room=2, full="drop oldest")
    newest = serve(sleeps(30), frames=20, period_ms=1, room=2, full="drop newest")
    for served in (oldest, newest):
        assert served.waiting.max() <= 2 and served.lost_share > 0.5
    assert not np.isnan(oldest.latency_ms[-2:]).any()  # the last ones are always kept
    assert not np.isnan(newest.latency_ms[:2]).any() and np.isnan(newest.latency_ms[-1])


def test_a_source_that_waits_loses_nothing_and_is_held_back():
    free, held = (serve(sleeps(8), frames=20, period_ms=1, room=room, full="wait") for room in (None, 2))
    assert held.lost_share == free.lost_share == 0
    assert held.waiting.max() <= 2
    assert held.offered_s[-1] > 15 * 0.008 > free.offered_s[-1]


@pytest.mark.parametrize("full", ["drop oldest", "wait"])
def test_a_failing_model_ends_the_service_with_its_reason(full):
    def fails(index):
        raise RuntimeError(f"frame {index}")

    with pytest.raises(RuntimeError, match="frame 0"):
        serve(fails, frames=10, period_ms=0.5, room=1, full=full)


def test_a_queue_without_room_is_rejected():
    with pytest.raises(ValueError, match="at least one frame, got 0"):
        serve(sleeps(0), frames=2, period_ms=1, room=0)


def test_the_figure_counts_lost_frames():
    served = Served(np.array([5.0, np.nan, 9.0]), np.array([1, 1, 1]), offered_s=np.array([0.0, 0.1, 0.2]))
    figure = queues({"room for one": served}, "One is lost")
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == [["33 %"], ["9 ms"]]
    assert style.png(figure).startswith(b"\x89PNG")
