"""`course profile`: the file of any profiler, recognized by its content, as a table for people or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util import text_files
from course_lib.benchmark.statistics import Interval, median_interval
from course_lib.cli import console
from course_lib.errors import ProfileError
from course_lib.profiling import find_faults, read_ncu, read_nsys, read_torch_trace
from course_lib.profiling.layer_tables.layer_times import LayerTimings
from course_lib.profiling.readers.ncu import KernelMetrics
from course_lib.profiling.readers.trtexec import InferenceTimes, read_inference_times, read_layer_times, read_layers
from course_lib.profiling.timelines.timeline import Timeline, label, time_text

Profile = LayerTimings | InferenceTimes | Timeline | tuple[KernelMetrics, ...]
_MOST_ROWS = 30


def read(file: Path, layers: Path | None = None) -> Profile:
    """What a profiler recorded.

    Args:
        layers: layer information of the engine whose layers were timed.

    Raises:
        ProfileError: no reader knows the file, or it is damaged or empty.
    """
    found = _read(file)
    if not layers:
        return found
    if not isinstance(found, LayerTimings):
        raise ProfileError(f"--layers describes times of layers, and {file} has none: leave it out")
    return found.with_table(read_layers(layers))


def _read(file: Path) -> Profile:
    try:
        with file.open("rb") as opened:
            start = opened.read(16)
    except OSError as error:
        raise ProfileError(f"cannot read {file}: {error.strerror or error}") from None
    if start.startswith(b"SQLite format 3") or file.suffix in (".nsys-rep", ".qdrep"):
        return read_nsys(file)
    if start.startswith(b"\x1f\x8b"):
        return read_torch_trace(file)
    text = text_files.read_text(file, errors="replace")
    if "=== Profile (" in text:
        return read_layer_times(file)
    if text.lstrip()[:1] not in ("{", "["):
        return read_ncu(file)
    rows = _rows(text)
    keys = {key for row in rows[:50] for key in row}
    if "traceEvents" in keys:
        return read_torch_trace(file)
    if "computeMs" in keys:
        return read_inference_times(file)
    if "ph" in keys and any(row.get("cat") == "Node" for row in rows):
        return _ort_profile(file, text)
    return read_torch_trace(file) if "ph" in keys else read_layer_times(file)


def _rows(text: str) -> list[dict[str, Any]]:
    """The dictionaries of a list, or the one of the document; none if it is not JSON, which trtexec's numbers may prevent."""
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return []
    return [row for row in (document if isinstance(document, list) else [document]) if isinstance(row, dict)]


def _ort_profile(file: Path, text: str) -> LayerTimings:
    try:
        return LayerTimings.from_ort_profile(text)
    except ValueError as error:
        raise ProfileError(f"{file}: {error}") from None


def to_json(found: Profile) -> dict[str, Any]:
    """Plain JSON values of a profile; a timeline has its summary and its faults."""
    if isinstance(found, tuple):
        return {"kernels": [{**asdict(kernel), "bound": kernel.bound} for kernel in found]}
    if isinstance(found, InferenceTimes):
        return {"inferences": len(found), "wall_ms": found.wall_ms, "per_second": found.per_second, "ms": _summary(found)}
    if isinstance(found, LayerTimings):
        return found.to_json()
    events = [{**asdict(row), "mean_us": row.mean_us} for row in found.summary()]
    faults = [
        {"name": fault.name, "share": fault.share, "finding": fault.finding, "advice": fault.advice} for fault in _faults(found)
    ]
    return {"span_us": found.span_us, "busy_us": found.busy_us, "lacks": found.lacks, "events": events, "faults": faults}


def _faults(timeline: Timeline) -> tuple[Any, ...]:
    return () if timeline.lacks else find_faults(timeline)


def show(found: Profile, name: str) -> None:
    """Print a profile."""
    if isinstance(found, LayerTimings):
        _show_layers(found)
    elif isinstance(found, InferenceTimes):
        _show_inferences(found)
    elif isinstance(found, Timeline):
        _show_timeline(found)
    else:
        rows = [
            (label(one.name, "kernel"), time_text(one.duration_us), _percent(one.dram_share), _percent(one.sm_share), one.bound)
            for one in found[:_MOST_ROWS]
        ]
        _table(
            f"{name}, launches of kernels: {len(found)}{_more(len(found))}",
            ("kernel", "time", "memory", "compute", "limit"),
            rows,
        )


def _show_layers(timings: LayerTimings) -> None:
    rows = [
        (f"{one.ms:.4f}", f"{100 * one.share:.1f} %", one.name, timings.operators(one), one.dtypes)
        for one in timings.heaviest(_MOST_ROWS)
    ]
    known = 5 if timings.table else 3  # without a table, operators and types are unknown
    title = f"{timings.takeaway()} ({timings.runs} runs, {timings.statistic}s){_more(len(timings.names))}"
    _table(title, ("ms", "share", "layer", "operators", "types")[:known], [row[:known] for row in rows])


def _summary(times: InferenceTimes) -> dict[str, dict[str, float]]:
    """Of every series: median, the 95 % interval of the median (equal to the median below 10 inferences), and 99th percentile."""
    rows = {}
    for name, series in times.ms.items():
        median = float(np.median(series))
        interval = median_interval(series, seed=0) if len(series) >= 10 else Interval(median, median, median)
        rows[name] = {"median": median, "low": interval.low, "high": interval.high, "p99": float(np.percentile(series, 99))}
    return rows


def _show_inferences(times: InferenceTimes) -> None:
    rows = [
        (name, f"{row['median']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}", f"{row['p99']:.4f}")
        for name, row in _summary(times).items()
    ]
    speed = f", {times.per_second:,.1f} per second" if times.per_second else ""
    _table(f"{len(times)} inferences{speed}", ("time", "median ms", "95 % interval", "p99 ms"), rows)


def _show_timeline(timeline: Timeline) -> None:
    rows = [
        (label(row.name, row.kind), row.kind, row.count, time_text(row.total_us), time_text(row.mean_us))
        for row in timeline.summary()[:_MOST_ROWS]
    ]
    title = timeline.headline() + _more(len(timeline.summary()))
    _table(title, ("name", "kind", "count", "total", "mean"), rows)
    if timeline.lacks:
        return
    for fault in (faults := _faults(timeline)):
        print(fault)
    if not faults:
        print("none of the usual faults was found")


def _table(title: str, columns: tuple[str, ...], rows: Sequence[Sequence[Any]]) -> None:
    console.table(title, columns, rows, ("name", "layer", "kernel", "operators"))


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _more(count: int) -> str:
    return f"; the first {_MOST_ROWS} of {count}" if count > _MOST_ROWS else ""
