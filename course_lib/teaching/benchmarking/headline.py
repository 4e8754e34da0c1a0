"""The headline table from its record (``benchmarks/networks.py``): speedups as Markdown, where TensorRT loses, and a figure.

Rows are plain JSON values as the script writes them. A row with ``failed`` has no figures; it is named below its table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib import style
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
BASELINE = "eager fp32"
GRAPH = " + CUDA graph"  # ends the name of an engine that is replayed
_ATTENTION = "attention: 8.6 is older than Hopper's attention kernels, torch's attention is one fused kernel"
# Our reading of a network where an engine of TensorRT 8.6 loses; printed beside a losing row and nowhere else.
NOTES = dict.fromkeys(("BERT-base", "ViT-B/16"), _ATTENTION)
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


def engine_type(row: Row) -> str:
    """The type of an engine as a table names it, such as ``FP16``; INT8 only if the layer table proves it."""
    if not int8_is_proved(row):
        return f"asked for INT8, layers: {', '.join(row.get('kernel_dtypes', {})) or 'not known'}"
    return "FP32/TF32" if row["dtype"] == "fp32" else row["dtype"].upper()


def nodes_on_cpu(rows: Sequence[Row]) -> list[str]:
    """A line for each candidate of ONNX Runtime that left nodes on the CPU: its times include copies and waiting."""
    found: dict[str, None] = {}
    for row in rows:
        for note in row.get("notes", ()):
            if match := re.match(r"(\d+) nodes run on the CPU", note):
                found[f"{row['network']}, {row['candidate']}: {match[1]} nodes ran on the CPU"] = None
    return list(found)


def losses(row: Row) -> list[str]:
    """Torch's candidates of the same dtype whose whole interval is faster than a TensorRT row.

    Empty for an engine that was built for INT8 and has no Int8 layer, because its type is not the compared one.
    """
    if not row["candidate"].startswith("TensorRT") or "failed" in row or not int8_is_proved(row):
        return []
    return [name for name, s in row["speedup"].items() if s["high"] < 1]


def explanation(row: Row, rows: Sequence[Row]) -> str:
    """The candidates that are faster than a TensorRT row, and the reason if it is known; empty if none is faster.

    If the same engine as a CUDA graph is not slower than any of them, the record itself shows the reason: kernel launches.
    """
    if not int8_is_proved(row):
        return f"not compared: {engine_type(row)}"
    lost = losses(row)
    if not lost:
        return ""
    place = (row["network"], row["batch"], row["candidate"] + GRAPH)
    replayed = [other for other in rows if (other["network"], other["batch"], other["candidate"]) == place]
    if replayed and "failed" not in replayed[0] and not set(lost) & set(losses(replayed[0])):
        why = "launches: as a CUDA graph the same engine does not"
    else:
        why = NOTES.get(row["network"], "not explained yet")
    return f"slower than {', '.join(f'{name} ({_ratio(row, name)})' for name in lost)}; {why}"


def headline_table(rows: Sequence[Row]) -> str:
    """All rows as Markdown, a table for each network, with what failed below it.

    Ratios have their 95 % interval. Accuracy is the relative error of the outputs against eager FP32 (ratio of L2 norms), and the
    detector's mean average precision.
    """
    return "\n\n".join(_network_table(network, rows) for network in dict.fromkeys(row["network"] for row in rows))


def _network_table(network: str, rows: Sequence[Row]) -> str:
    own = [row for row in rows if row["network"] == network]
    columns = ("batch", "candidate", "ms", "over eager, same dtype", f"over {BASELINE}", "error", "build s", "TensorRT loses")
    lines = [f"### {network}", "", f"| {' | '.join(columns)} |", "|---:|---|---:|---:|---:|---:|---:|---|"]
    for row in own:
        if "failed" in row:
            continue
        same = _ratio(row, row["same_dtype"])
        error = f"{row['relative_error']:.0e}" if "relative_error" in row else ""
        error += f", mAP {row['mean_ap']:.3f}" if "mean_ap" in row else ""
        way = f", {row['way']}" if row["dtype"] == "int8" and "way" in row else ""
        cells = [
            row["batch"],
            _label(row) + way,
            f"{row['ms']:.3g}",
            same,
            _ratio(row, BASELINE),
            error.removeprefix(", "),
        ]
        cells += [f"{row['build_s']:.0f}" if "build_s" in row else "", explanation(row, rows)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    failed = [f"- batch {row['batch']}, {row['candidate']}: {row['failed']}" for row in own if "failed" in row]
    below = [*(["", "Not measured:", *failed] if failed else []), *(f"\n{line}." for line in nodes_on_cpu(own))]
    return "\n".join([*lines, *below])


def _label(row: Row) -> str:
    """The candidate's name, without a type that its layers do not have."""
    name: str = row["candidate"]
    return name if int8_is_proved(row) else name.replace(" int8", f" ({engine_type(row)})")


def _ratio(row: Row, name: str) -> str:
    found = row["speedup"].get(name)
    return f"{found['median']:.2f}x [{found['low']:.2f}-{found['high']:.2f}]" if found else ""


def draw_headline(rows: Sequence[Row], shown: Sequence[str] = ()) -> Figure:
    """Speedups over eager FP32 with their intervals: one panel for each batch size, one row for each network.

    Engines that were built for INT8 and have no Int8 layer are left out.

    Args:
        shown: names of candidates, at most one for each color; by default the fastest way of each kind.

    Raises:
        CourseError: none of the rows is of a candidate to show.
    """
    rows = [row for row in rows if int8_is_proved(row)]
    there = list(dict.fromkeys(row["candidate"] for row in rows if "failed" not in row and row["candidate"] != BASELINE))
    names = [name for name in shown or _DRAWN if name in there] or ([] if shown else there[: len(style.COLORS)])
    if not names:
        raise CourseError(f"no speedups to draw: the rows have {', '.join(there) or 'no candidate with figures'}")
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


def _panel(axes: Axes, rows: Sequence[Row], networks: Sequence[str], names: Sequence[str]) -> None:
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
