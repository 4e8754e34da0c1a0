"""A timeline with zoom, down to single kernels."""

from __future__ import annotations

from course_lib.profiling import Timeline, find_faults
from course_lib.profiling.timelines.timeline import label
from course_lib.profiling.timelines.timeline_figure import class_of, event_rows
from course_lib.teaching.widgets.view import View


class TimelineViewer(View):
    """A timeline of kernels, copies and calls, with the device's idle time in gray and the usual faults below.

    Args:
        timeline: a timeline from a reader of `course_lib.profiling`.
        device: name of the device if it is not a GPU.

    Raises:
        ValueError: a timeline without events, or all at one moment.
    """

    def __init__(self, timeline: Timeline, device: str = "GPU") -> None:
        if not timeline.events or not timeline.span_us:
            raise ValueError(
                "this timeline has nothing to zoom into: was anything recorded between start and stop of the profiler?"
            )
        ends = {"from": timeline.start_us / 1e3, "to": timeline.end_us / 1e3}
        super().__init__("timeline", _data(timeline, device), {**ends, "search": "", "faults": True, "event": -1})


def _data(timeline: Timeline, device: str) -> dict[str, object]:
    rows, _ = event_rows(timeline)
    events = [(at, event) for at, row in enumerate(rows) for event in row.events]
    names, kinds = dict[str, int](), dict[str, int]()
    places = sorted((event.start_us, at) for at, (row, event) in enumerate(events) if rows[row].device)
    return {
        "device": device,
        "start": timeline.start_us,
        "end": timeline.end_us,
        "headline": timeline.headline(device),
        "rows": [{"title": row.name, "device": row.device} for row in rows],
        "events": {
            "row": [row for row, _ in events],
            "start": [round(event.start_us, 3) for _, event in events],
            "us": [round(event.duration_us, 3) for _, event in events],
            "name": [names.setdefault(label(event.name, event.kind), len(names)) for _, event in events],
            "kind": [kinds.setdefault(class_of(event), len(kinds)) for _, event in events],
        },
        "names": list(names),
        "kinds": list(kinds),
        "device_events": [at for _, at in places],
        "busy": [list(stretch) for stretch in timeline.busy],
        "faults": [
            {"name": one.name, "share": one.share, "lost": [list(part) for part in one.lost]}
            for one in (() if timeline.lacks else find_faults(timeline))
        ],
    }
