"""Lecture 1: when a build pays off, and PyTorch operators on a timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.profiling.timelines.recorder import Recorder
from course_lib.profiling.timelines.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def break_even(build_s: float, slow_ms: float, fast_ms: float) -> float:
    """The number of requests after which a build pays off; infinite if it does not save time.

    Args:
        build_s: duration of the build in seconds.
        slow_ms, fast_ms: latency without and with it, in milliseconds.
    """
    saved_ms = slow_ms - fast_ms
    return 1e3 * build_s / saved_ms if saved_ms > 0 else math.inf


def draw_break_even(ways: Mapping[str, tuple[float, float]], requests: int, title: str) -> Figure:
    """Draw the total time in seconds over the number of requests.

    Args:
        ways: for each name, the seconds before the first request and the milliseconds per request.
        requests: the right end of the axis.
        title: the takeaway.
    """
    figure = style.figure(3.0)
    axes = figure.add_subplot()
    for index, (name, (start_s, ms)) in enumerate(ways.items()):
        axes.plot([0, requests], [start_s, start_s + requests * ms / 1e3], color=style.color(index), label=name)
    axes.set(xlabel="requests answered", ylabel="seconds spent in all", xlim=(0, requests))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    style.name_lines(axes)
    axes.set_title(title)
    return figure


def record_operators(call: Callable[[], object]) -> Timeline:
    """Record every PyTorch operator in `call` as work of the device. On a CPU, an operator is done when it returns.

    The gaps between operators are Python, PyTorch's dispatcher and this recording, which takes some microseconds per operator.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    recorder = Recorder("operators")

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> object:
            with recorder.work(str(func).removeprefix("aten.").partition(".")[0]):
                return func(*args, **(kwargs or {}))

    with Watched():
        call()
    return recorder.timeline()
