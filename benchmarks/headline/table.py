"""The headline table from its record: speedups as Markdown, and the reason if it is known where TensorRT loses.

A row with ``failed`` has no figures; it is named below its table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from course_lib.teaching.benchmarking.headline import BASELINE, GRAPH, Row, int8_is_proved, losses

_ATTENTION = "attention: 8.6 is older than Hopper's attention kernels, torch's attention is one fused kernel"
# Our reading of a network where an engine of TensorRT 8.6 loses; printed beside a losing row and nowhere else.
NOTES = dict.fromkeys(("BERT-base", "ViT-B/16"), _ATTENTION)


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
