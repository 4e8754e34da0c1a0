"""Lecture 1: when a build pays off, and PyTorch operators on a timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.profiling.timelines.recorder import Recorder
from course_lib.profiling.timelines.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from course_lib.benchmark.records import Record


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


def draw_speedups(record: Record, *, networks: Collection[str], batches: Collection[int]) -> Figure:
    """Two bars for each network and batch: the speed of an engine in FP32 and of one in FP16 over PyTorch eager FP32."""
    found: dict[str, dict[str, float]] = {}
    for row in record.rows:
        if row["network"] in networks and row["batch"] in batches:
            name = f"{row['network']},\nbatch {row['batch']}"
            found.setdefault(name, {})[row["precision"].upper()] = row["speedup"]["median"]
    figure = style.figure(1.2 + 0.5 * len(found), width=style.NARROW)
    axes = figure.add_subplot()
    for index, kind in enumerate(("FP32", "FP16")):
        places = [place + 0.38 * index - 0.19 for place in range(len(found))]
        speeds = [pair[kind] for pair in found.values()]
        drawn = axes.barh(places, speeds, 0.36, color=style.color(index), label=f"engine in {kind}")
        axes.bar_label(drawn, fmt="%.1f", padding=3)
    axes.set_yticks(range(len(found)), list(found))
    axes.tick_params(axis="y", length=0)
    axes.set(xlabel=f"speed over PyTorch eager FP32 (TF32 allowed)\n{record.device}, TensorRT {record.versions['tensorrt']}")
    axes.set(xticks=[], ylim=(len(found) - 0.45, -0.55))
    axes.margins(x=0.12)
    axes.spines["bottom"].set_visible(False)
    style.name_colors(axes)
    every = [speed for pair in found.values() for speed in pair.values()]
    axes.set_title(f"An engine is {min(every):.1f} to {max(every):.1f} times as fast as PyTorch eager FP32")
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
