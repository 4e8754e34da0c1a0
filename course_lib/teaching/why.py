"""Lecture 1: when a build pays off, and PyTorch operators on a timeline."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.profiling.timelines.recorder import Recorder
from course_lib.profiling.timelines.timeline import Timeline

if TYPE_CHECKING:
    from course_lib.benchmark.records import Record


def break_even(build_s: float, slow_ms: float, fast_ms: float) -> float:
    """The number of requests after which a build pays off; infinite if it does not save time.

    Args:
        build_s: duration of the build in seconds.
        slow_ms, fast_ms: latency without and with it, in milliseconds.
    """
    saved_ms = slow_ms - fast_ms
    return 1e3 * build_s / saved_ms if saved_ms > 0 else math.inf


def draw_break_even(ways: Mapping[str, tuple[float, float]], requests: int, title: str) -> style.Figure:
    """Draw the total time in seconds over the number of requests.

    Args:
        ways: for each name, the seconds before the first request and the milliseconds per request.
        requests: the right end of the axis.
        title: the takeaway.
    """
    figure, axes = style.subplots(3.0)
    for index, (name, (start_s, ms)) in enumerate(ways.items()):
        axes.plot([0, requests], [start_s, start_s + requests * ms / 1e3], color=style.color(index), label=name)
    axes.set(xlabel="requests answered", ylabel="seconds spent in all", xlim=(0, requests))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    style.name_lines(axes)
    axes.set_title(title)
    return figure


def draw_speedups(record: Record, *, networks: Collection[str], batches: Collection[int]) -> style.Figure:
    """Two bars for each network and batch: the speed of an engine in FP32 and of one in FP16 over PyTorch eager FP32, with intervals."""
    found: dict[str, dict[str, Mapping[str, float]]] = {}
    for row in record.rows:
        if row["network"] in networks and row["batch"] in batches:
            name = f"{row['network']},\nbatch {row['batch']}"
            found.setdefault(name, {})[row["precision"].upper()] = row["speedup"]
    figure, axes = style.subplots(1.2 + 0.5 * len(found))
    for index, kind in enumerate(("FP32", "FP16")):
        places = [place + 0.38 * index - 0.19 for place in range(len(found))]
        speeds = [pair[kind] for pair in found.values()]
        middles = [speed["median"] for speed in speeds]
        axes.barh(places, middles, 0.36, color=style.color(index), label=f"engine in {kind}")
        axes.hlines(places, [speed["low"] for speed in speeds], [speed["high"] for speed in speeds], color="black", lw=1.2)
        for place, speed in zip(places, speeds, strict=True):
            text = f"{speed['median']:.1f}x"
            axes.annotate(text, (speed["high"], place), (4, 0), textcoords="offset points", va="center")
    axes.axvline(1, color="#bbbbbb", lw=1)
    style.name_rows(axes, list(found))
    axes.set_xlabel(
        f"times as fast as eager FP32, with 95 % intervals\n{record.device}, TensorRT {record.versions['tensorrt']}"
    )
    axes.set_xticks([0, 1])
    axes.margins(x=0.12)
    axes.spines["bottom"].set_visible(False)
    style.name_colors(axes)
    every = [speed["median"] for pair in found.values() for speed in pair.values()]
    axes.set_title(f"Engines run {min(every):.1f} to {max(every):.1f} times as fast as eager FP32")
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
