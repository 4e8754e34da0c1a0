"""The ranking of a sensitivity analysis as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.benchmark.accuracy import decibels

if TYPE_CHECKING:
    from course_lib.benchmark.node_sensitivity import NodeError, Sensitivity

_LONGEST = 26  # characters of a node's name; the end tells nodes apart


def sensitivity_figure(found: Sensitivity, n: int = 20) -> style.Figure:
    """The worst `n` nodes as horizontal bars, relative error on a logarithmic axis, each labeled in percent and dB.

    A node that makes outputs overflow has a bar over the full width, in another color. The title names the worst one.
    """
    rows = found.worst(n)
    errors = np.array([row.deviation.relative_error for row in rows])
    drawable = errors[np.isfinite(errors) & (errors > 0)]
    decades = np.log10(drawable) if len(drawable) else np.array([-6.0, -1.0])
    low, high = 10 ** np.floor(decades.min() - 0.1), 10 ** np.ceil(decades.max() + 0.5)
    figure, axes = style.subplots(1.1 + 0.22 * max(len(rows), 2))
    for place, row in enumerate(rows):
        overflows = row.deviation.nonfinite > 0
        axes.barh(place, high if overflows else max(errors[place], low), color=style.color(1 if overflows else 0), height=0.7)
        at, inside = (low * 1.05, True) if overflows else (max(errors[place], low), False)
        color = "white" if inside else "black"
        axes.annotate(_label(row), (at, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=color)
    axes.set_yticks(range(len(rows)), [_shortened(row) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_xlabel("relative error of the outputs, L2 (log)")
    figure.suptitle(_takeaway(found), fontsize=10, fontweight="bold")  # over the names too: it is longer than the axes
    return figure


def _label(row: NodeError) -> str:
    if row.deviation.nonfinite:
        return f"{row.deviation.nonfinite} output values NaN or infinite"
    if row.deviation.relative_error == 0:
        return "no error"
    return f"{in_percent(row.deviation.relative_error)}, {row.deviation.sqnr_db:.0f} dB"


def _shortened(row: NodeError) -> str:
    return row.node if len(row.node) <= _LONGEST else "..." + row.node[-_LONGEST:]


def _takeaway(found: Sensitivity) -> str:
    lost = sum(row.deviation.nonfinite > 0 for row in found.rows)
    if lost:
        return f"{found.dtype}: {lost} of {len(found.rows)} nodes alone make the outputs overflow, first {_shortened(found.rows[0])}"
    if not found.rows or found.rows[0].deviation.relative_error == 0:
        return f"{found.dtype}: no node changes the outputs"
    errors = [row.deviation.relative_error for row in found.rows]
    first, others = _shortened(found.rows[0]), errors[0] / max(float(np.median(errors)), 1e-30)
    return f"{found.dtype}: {first} alone leaves {decibels(errors[0]):.0f} dB, {others:.0f} times the median node's error"


def in_percent(share: float) -> str:
    """Two significant digits, and never an exponent for a large one: ``0.21 %``, ``4.5 %``, ``210 %``."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 99.5 else f"{value:.2g} %"
