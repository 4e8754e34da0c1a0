"""Lab 09's figure: what each unit of the device does at which time."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from course_lib.profiling import Timeline, draw_timeline
from course_lib.profiling.timelines.timeline import Event, Kind
from course_lib.standin.costs import Schedule

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_schedule(schedule: Schedule, takeaway: str) -> Figure:
    """Draw copies to the device, runs, copies to the host, and the waits of the host, by the grader's cost model."""
    events = tuple(Event(name, cast(Kind, kind), start, us, unit) for name, kind, start, us, unit in schedule.intervals)
    figure = draw_timeline(Timeline(events, (0.0, schedule.time_us)), device="device")
    axes = figure.axes[0]
    axes.set_xlabel(axes.get_xlabel().replace("time (", "time by the cost model ("))
    axes.set_title(takeaway, loc="left")
    return figure
