"""A timeline to zoom into."""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.profiling import Timeline, draw_timeline, find_faults
from course_lib.profiling.timeline import time_text
from course_lib.widgets.controls import range_slider, switch
from course_lib.widgets.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class TimelineViewer(Shown):
    """Kernels, copies and calls of a stretch of time, the idle time of the device in grey, and the usual faults under it.

    Args:
        timeline: of a reader of `course_lib.profiling`.

    Raises:
        ValueError: a timeline without events, or all at one moment.
    """

    def __init__(self, timeline: Timeline) -> None:
        if not timeline.events or not timeline.span_us:
            raise ValueError(
                "this timeline has nothing to zoom into: was anything recorded between start and stop of the profiler?"
            )
        self._timeline, self._faults = timeline, find_faults(timeline)
        # every zoom is drawn at the size of the whole stretch, which has the most rows
        self._size = draw_timeline(timeline, faults=self._faults).get_size_inches()
        super().__init__(
            {
                "zoom": range_slider("Zoom (ms)", timeline.start_us / 1e3, timeline.end_us / 1e3),
                "faults": switch("Mark the faults", True),
            }
        )

    def figure(self, zoom: tuple[float, float], faults: bool) -> Figure:
        """The stretch between two times of the timeline, in milliseconds."""
        start, end = self._stretch(zoom)
        figure = draw_timeline(self._timeline, start_us=start, end_us=end, faults=self._faults if faults else ())
        figure.set_size_inches(*self._size)
        return figure

    def text(self, zoom: tuple[float, float], faults: bool) -> str:
        """How busy the device was in the stretch, its longest gaps, and the faults of the whole timeline."""
        start, end = self._stretch(zoom)
        shown = self._timeline.window(start, end)
        gaps = sorted((end - start for start, end in shown.gaps()), reverse=True)
        said = f"{shown.headline()}. {len(gaps)} {'gap' if len(gaps) == 1 else 'gaps'}"
        said += f", the longest {', '.join(map(time_text, gaps[:3]))}" if gaps else ""
        named = [f"{fault.name} ({100 * fault.share:.0f} %)" for fault in self._faults]
        return f"{said}. Faults of the whole timeline: {', '.join(named) or 'none found'}."

    def _stretch(self, zoom: tuple[float, float]) -> tuple[float, float]:
        """In microseconds; at least a thousandth of the timeline, so that there is something to see."""
        start, end = 1e3 * zoom[0], 1e3 * zoom[1]
        least = self._timeline.span_us / 1e3
        return (start, end) if end - start >= least else (start - least / 2, start + least / 2)
