"""Lab 09's figure: what each unit of the device does at which time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.labs.lab09_runtime.judge.costs import Schedule
from course_lib.profiling import draw_timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_schedule(found: Schedule, takeaway: str) -> Figure:
    """Draw copies to the device, runs, copies to the host, and the waits of the host, by the grader's cost model.

    Args:
        takeaway: the title.
    """
    figure = draw_timeline(found.timeline, device="device")
    axes = figure.axes[0]
    axes.set_xlabel(axes.get_xlabel().replace("time (", "time by the cost model ("))
    axes.set_title(takeaway, loc="left", pad=24)
    return figure
