"""Lecture 13: what Torch-TensorRT 2.2.0 did on an H200, as `benchmarks/torch_trt.py` recorded it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from course_lib import style
from course_lib.benchmark.records import Record
from course_lib.teaching.torch_tensorrt import Block, Partition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Outcome = Literal["read", "ignored", "ignored with a warning", "rejected"]
# Settings that are stored, and have no effect on what is built: the number of engines shows it, or the documentation says it.
_STORED_ONLY = ("require_full_compilation", "pass_through_build_failures")


def recorded_partition(record: Record, case: str) -> Partition:
    """The blocks that were made in a case of the section ``partition``, in the order of the run.

    Raises:
        CourseError: the record has no such case.
    """
    blocks = record.case("partition", case)["blocks"]
    return Partition(tuple(Block(block["runs_in"] == "TensorRT", tuple(block["operators"])) for block in blocks), ())


def outcome(row: Mapping[str, Any]) -> Outcome:
    """What `compile` did with the argument of a row of the section ``arguments``."""
    if row["failed"]:
        return "rejected"
    if any(name not in _STORED_ONLY for name in row["settings_changed"]):
        return "read"
    return "ignored with a warning" if row["warnings"] else "ignored"


def outcomes(record: Record) -> dict[Outcome, list[str]]:
    """All arguments that were tried one at a time, such as ``"dryrun=True"``, by what came of them."""
    found: dict[Outcome, list[str]] = {"rejected": [], "ignored with a warning": [], "ignored": [], "read": []}
    for row in record.section("arguments")[1:]:  # the first row is the call without any of them
        found[outcome(row)].append(row["case"])
    return found


def draw_errors(errors: Mapping[str, float], title: str) -> Figure:
    """A bar for each relative error, on a logarithmic axis."""
    figure = style.figure(7.5, 1.2 + 0.36 * len(errors))
    axes = figure.add_subplot()
    names = list(errors)
    hues = [style.COLORS[1] if errors[name] > 1e-2 else style.COLORS[2] for name in names]
    axes.barh(names, [errors[name] for name in names], left=1e-8, color=hues, alpha=0.85)
    for index, name in enumerate(names):
        axes.annotate(f"{errors[name]:.1e}", (errors[name], index), (5, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set(xscale="log", xlim=(1e-8, 50), xlabel="relative error (log scale)", ylim=(len(names) - 0.4, -0.6))
    axes.set_title(title)
    return figure


def draw_gains(rows: Sequence[Mapping[str, Any]], ratios: Sequence[str], title: str) -> Figure:
    """Ratios of latencies with their intervals: a line for each row, a color for each kind of ratio.

    Args:
        rows: of the section ``latency``.
        ratios: such as ``"eager / torch_tensorrt"``.
    """
    figure = style.figure(7.5, 1.4 + 0.42 * len(rows))
    axes = figure.add_subplot()
    for number, ratio in enumerate(ratios):
        found = [(index, row["ratios"][ratio]) for index, row in enumerate(rows) if ratio in row.get("ratios", {})]
        places = [index + 0.2 * (number - (len(ratios) - 1) / 2) for index, _ in found]
        middle = [interval["median"] for _, interval in found]
        spread = [
            [interval["median"] - interval["low"] for _, interval in found],
            [interval["high"] - interval["median"] for _, interval in found],
        ]
        label = ratio.replace("torch_tensorrt", "Torch-TensorRT")
        axes.errorbar(middle, places, xerr=spread, fmt="o", ms=5, capsize=3, color=style.COLORS[number], label=label)
        for value, place in zip(middle, places, strict=True):
            axes.annotate(f"{value:.2f}", (value, place), (8, 0), textcoords="offset points", va="center", fontsize=7.5)
    axes.axvline(1, color="#999999", lw=1)
    axes.set_yticks(range(len(rows)), [row["case"] for row in rows])
    axes.set(xlabel="ratio of latencies, with 95 % interval (above 1: the second is faster)", xscale="log")
    axes.set(ylim=(len(rows) - 0.5, -0.5))
    axes.margins(x=0.12)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    axes.set_title(title)
    return figure
