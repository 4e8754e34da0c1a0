"""Speedups from the record of ``benchmarks/networks.py``, drawn, and the cases in which TensorRT is slower.

Rows are plain JSON values as the script writes them. A row with ``failed`` has no figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib import style
from course_lib.errors import CourseError

Row = Mapping[str, Any]
BASELINE = "eager fp32"
GRAPH = " + CUDA graph"  # ends the name of an engine that is replayed
_DRAWN = (  # in the order of their colors
    "cuda graph fp16",
    "compile fp16",
    "compile+cuda graph fp16",
    "onnxruntime fp16",
    "TensorRT fp32/TF32 + CUDA graph",
    "TensorRT fp16 + CUDA graph",
    "TensorRT int8 + CUDA graph",
    "TensorRT fp16, attention plugin + CUDA graph",
)


def int8_is_proved(row: Row) -> bool:
    """Whether a row may be called INT8: its layer table has at least one Int8 layer. Rows of other types are always proved.

    A builder may read a model with Q/DQ pairs, store 8-bit weights, and still compute in another type.
    """
    return row["dtype"] != "int8" or bool(row.get("kernel_dtypes", {}).get("Int8"))


def losses(row: Row) -> list[str]:
    """Torch's candidates of the same dtype whose whole interval is faster than a TensorRT row.

    Empty for an engine that was built for INT8 and has no Int8 layer, because its type is not the compared one.
    """
    if not row["candidate"].startswith("TensorRT") or "failed" in row or not int8_is_proved(row):
        return []
    return [name for name, s in row["speedup"].items() if s["high"] < 1]


def draw_headline(rows: Sequence[Row]) -> style.Figure:
    """Speedups over eager FP32 with their intervals: one panel for each batch size, one row for each network.

    The candidates are the fastest way of each kind. Engines that were built for INT8 and have no Int8 layer are left out.

    Raises:
        CourseError: no row has a speedup.
    """
    rows = [row for row in rows if int8_is_proved(row)]
    there = list(dict.fromkeys(row["candidate"] for row in rows if "failed" not in row and row["candidate"] != BASELINE))
    if not there:
        raise CourseError("no speedups to draw: the rows have no candidate with figures")
    names = [name for name in _DRAWN if name in there] or there[: len(style.COLORS)]
    batches = sorted({row["batch"] for row in rows})
    networks = list(dict.fromkeys(row["network"] for row in rows))
    figure = style.figure(1.5 + 0.17 * len(names) + 0.11 * len(networks) * (len(names) + 2))
    panels = figure.subplots(1, len(batches), sharey=True, sharex=True, squeeze=False)[0]
    for axes, batch in zip(panels, batches, strict=True):
        _panel(axes, [row for row in rows if row["batch"] == batch and "failed" not in row], networks, names)
        axes.set_title(f"batch {batch}")
    style.name_rows(panels[0], networks)
    panels[len(panels) // 2].set_xlabel(f"times as fast as {BASELINE} (log)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", frameon=False, fontsize=8)
    figure.suptitle(_takeaway(rows))
    return figure


def _panel(axes: style.Axes, rows: Sequence[Row], networks: Sequence[str], names: Sequence[str]) -> None:
    step = 0.8 / len(names)
    for index, name in enumerate(names):
        found = {row["network"]: row["speedup"][BASELINE] for row in rows if row["candidate"] == name}
        places = np.array([networks.index(network) for network in found]) + (index - (len(names) - 1) / 2) * step
        middle = np.array([s["median"] for s in found.values()])
        width = np.array([(s["median"] - s["low"], s["high"] - s["median"]) for s in found.values()]).T
        marker = "s" if name.startswith("TensorRT") else "o"
        axes.errorbar(
            middle, places, xerr=width if found else None, fmt=marker, ms=4, lw=1.5, color=style.color(index), label=name
        )
    axes.axvline(1, color="0.4", lw=1, ls="--")
    for boundary in range(1, len(networks)):
        axes.axhline(boundary - 0.5, color="0.9", lw=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if str(value).lstrip("0.")[:1] in "25" else "")
    axes.tick_params(which="both", labelsize=8)


def _takeaway(rows: Sequence[Row]) -> str:
    """The largest gain of TensorRT, and the number of cases in which torch is faster in the same dtype than both of its ways to run."""
    own = [row for row in rows if row["candidate"].startswith("TensorRT") and "failed" not in row]
    if not own:
        best = max(
            (row for row in rows if "failed" not in row and row["speedup"]), key=lambda r: r["speedup"][BASELINE]["median"]
        )
        return f"{best['candidate']}: {best['speedup'][BASELINE]['median']:.1f} times {BASELINE} at best ({best['network']})"
    best = max(own, key=lambda row: row["speedup"][BASELINE]["median"])
    cases: dict[tuple[Any, ...], list[bool]] = {}
    for row in own:
        key = (row["network"], row["batch"], row["candidate"].removesuffix(GRAPH))
        cases.setdefault(key, []).append(bool(losses(row)))
    lost = sum(all(found) for found in cases.values())
    return (
        f"TensorRT: up to {best['speedup'][BASELINE]['median']:.1f} times {BASELINE} ({best['network']}, batch {best['batch']}); "
        f"torch's best is faster in {lost} of {len(cases)} cases"
    )
