"""Lecture 13: what Torch-TensorRT 2.2.0 did on an H200, as `benchmarks/torch_trt.py` recorded it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from course_lib import style
from course_lib.benchmark.records import Record
from course_lib.engines.backends.torch_tensorrt.blocks import Block, Blocks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Outcome = Literal["read", "ignored", "ignored with a warning", "rejected"]
# Settings that are stored, and have no effect on what is built: the number of engines shows it, or the documentation says it.
_STORED_ONLY = ("require_full_compilation", "pass_through_build_failures")


def recorded_partition(record: Record, case: str) -> Blocks:
    """The blocks that were made in a case of the section ``partition``, in the order of the run.

    Raises:
        CourseError: the record has no such case.
    """
    blocks = record.case("partition", case)["blocks"]
    return Blocks(tuple(Block(block["runs_in"] == "TensorRT", tuple(block["operators"])) for block in blocks), "2.2.0")


def outcome(row: Mapping[str, Any], usual: Mapping[str, Any]) -> Outcome:
    """What `compile` did with the argument of a row of the section ``arguments``; `usual` is the row of the call without it."""
    if row["failed"]:
        return "rejected"
    if any(name not in _STORED_ONLY for name in row["settings_changed"]):
        return "read"
    return "ignored with a warning" if set(row["warnings"]) - set(usual["warnings"]) else "ignored"


def outcomes(record: Record) -> dict[Outcome, list[str]]:
    """All arguments that were tried one at a time, such as ``"dryrun=True"``, by what came of them."""
    found: dict[Outcome, list[str]] = {"rejected": [], "ignored with a warning": [], "ignored": [], "read": []}
    usual, *rows = record.section("arguments")
    for row in rows:
        found[outcome(row, usual)].append(row["case"])
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
