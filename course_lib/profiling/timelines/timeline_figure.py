"""A timeline as a picture: ranges and calls of the host above, streams of the device below."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from course_lib import style
from course_lib.profiling.timelines.intervals import Interval
from course_lib.profiling.timelines.timeline import Event, Timeline, label, time_text

_COLORS: Mapping[str, str] = {
    "range": "#007A58",  # darker than the green of lines: it has white names
    "operator": "#BBBBBB",
    "call": style.COLORS[5],
    "call that waits": style.COLORS[3],
    "kernel": style.COLORS[0],
    "CUDA graph": "#7A5BA8",
    "copy": style.COLORS[4],
    "pageable copy": style.COLORS[1],
    "memset": "#777777",
}
_CLASSES: Mapping[str, str] = {"range": "range", "op": "operator", "api": "call", "sync": "call that waits", "kernel": "kernel",
                                "graph": "CUDA graph"}  # fmt: skip
_IDLE = "#DDDDDD"
_ROW = 0.34  # inches
_PIXELS = 330  # of the time axis; a bar is drawn at least one pixel wide
_CHARACTER = 7.4  # pixels of one letter inside a bar
_MOST_ROWS = 8  # of one sort; more threads or streams than that are counted, not drawn
_INKS = {"operator": "black"} | dict.fromkeys(
    ("call", "call that waits", "copy"), style.BLACK_ON_COLOR
)  # other names are white
_VISIBLE = 6  # pixels of a class in a row from which the legend has its name
_SOLID = 0.85  # share of a bar from which pauses do not show
_DEEPEST = 3  # ranges inside ranges


@dataclass(frozen=True)
class _Bar:
    """The bar for one event, or for several events less than a pixel apart. Such a bar has no text, and is as high as their share."""

    start: float
    end: float
    filled: float  # how much of it the events cover
    text: str = ""

    @property
    def share(self) -> float:
        """Of the time that the events cover, at most 1."""
        return min(self.filled / (self.end - self.start), 1.0) if self.end > self.start else 1.0


@dataclass(frozen=True)
class EventRow:
    """Events that share a line of the picture; `name` is "" if a line continues the one above it."""

    name: str
    events: tuple[Event, ...]
    device: bool


def draw_timeline(
    timeline: Timeline,
    *,
    start_us: float | None = None,
    end_us: float | None = None,
    device: str = "GPU",
    title: str = "",
) -> style.Figure:
    """Draw one row for each thread and stream, with the idle time of the device shaded.

    Args:
        timeline: the timeline. It can have thousands of events; bars less than a pixel apart are joined.
        start_us, end_us: zoom; by default the whole observed time with a small margin on both sides.
        device: name of the device if it is not a GPU.
        title: the takeaway; by default the headline of what is shown.

    Raises:
        ValueError: the timeline has no events, or the zoom ends before it starts.
    """
    if not timeline.events:
        raise ValueError("this timeline has no events to draw: was anything recorded between start and stop of the profiler?")
    zoomed = start_us is not None or end_us is not None
    start = timeline.start_us if start_us is None else start_us
    end = timeline.end_us if end_us is None else end_us
    if end < start:
        raise ValueError(f"the zoom ends at {end} us, before it starts at {start} us")
    margin = 0.0 if zoomed and end > start else max(0.02 * (end - start), 0.5)
    shown = timeline.window(start - margin, end + margin)
    rows, left_out = event_rows(shown)
    pixel = shown.span_us / _PIXELS

    unit, size = ("ms", 1e3) if shown.span_us >= 1e3 else ("us", 1.0)
    figure, axes = style.subplots(1.1 + _ROW * max(len(rows), 1))
    drawn = [_bars(row.events, pixel) for row in rows]
    for place, classes in enumerate(drawn):
        for kind, bars in classes.items():
            _draw(axes, place, kind, bars, shown, size, pixel)
    places = [place for place, row in enumerate(rows) if row.device]
    if places:
        _shade_gaps(axes, shown, (places[0] - 0.5, places[-1] + 0.5), size, pixel)
    axes.set_xlim(shown.start_us / size, shown.end_us / size)
    style.name_rows(axes, [row.name for row in rows])
    pauses = any(bar.share < _SOLID for classes in drawn for bars in classes.values() for bar in bars)
    notes = ["\nlow bars: short events with pauses"] if pauses else []
    notes += [f"\n{left_out} more rows are not drawn"] if left_out else []
    axes.set_xlabel(f"time ({unit}){''.join(notes)}")
    lengths = [(kind, sum(max(bar.end - bar.start, pixel) for bar in bars)) for row in drawn for kind, bars in row.items()]
    wide = {kind for kind, length in lengths if length >= _VISIBLE * pixel}
    _legend(axes, wide, device, idle=bool(places))
    axes.set_title(title or (timeline.window(start, end) if zoomed else timeline).headline(device), loc="left")
    return figure


def event_rows(shown: Timeline) -> tuple[list[EventRow], int]:
    """The rows from top to bottom, and how many more threads and streams there are."""
    sorts: dict[str, dict[str, list[Event]]] = {sort: defaultdict(list) for sort in ("range", "op", "call", "device")}
    for event in shown.events:
        sorts["device" if event.on_device else "call" if event.kind in ("api", "sync") else event.kind][event.row].append(event)
    rows, left_out = list[EventRow](), 0
    for sort, by_row in sorts.items():
        busiest = sorted(by_row, key=lambda name: -sum(event.duration_us for event in by_row[name]))
        left_out += len(busiest[_MOST_ROWS:])
        titles = {"range": "ranges", "op": "operators", "call": "calls", "device": ""}
        several = len(by_row) > 1 or sort == "device"
        for name in sorted(busiest[:_MOST_ROWS], key=_natural):
            title = f"{titles[sort]}, {name}".removeprefix(", ") if several else titles[sort]
            for depth, events in enumerate(_levels(by_row[name])):
                rows.append(EventRow("" if depth else title, tuple(events), device=sort == "device"))
    return rows, left_out


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts ``stream 7`` before ``stream 13``."""
    return [(int(word), "") if word.isdecimal() else (0, word) for word in name.split()]


def _levels(events: Sequence[Event]) -> list[list[Event]]:
    """Ranges inside ranges go one row down, down to the deepest; everything else stays on one row."""
    if any(event.kind != "range" for event in events):
        return [list(events)]
    levels: list[list[Event]] = []
    open_until: list[float] = []
    for event in events:
        while open_until and open_until[-1] <= event.start_us:
            open_until.pop()
        if len(open_until) < _DEEPEST:
            levels += [[]] if len(open_until) == len(levels) else []
            levels[len(open_until)].append(event)
        open_until.append(event.end_us)
    return levels


def class_of(event: Event) -> str:
    """The name of an event's class in the legend."""
    return "pageable copy" if event.pageable else _CLASSES.get(event.kind, event.kind)


def _bars(events: Iterable[Event], pixel: float) -> dict[str, list[_Bar]]:
    """Bars by class of the legend."""
    bars: dict[str, list[_Bar]] = defaultdict(list)
    for event in events:
        bars[class_of(event)].append(_Bar(event.start_us, event.end_us, event.duration_us, label(event.name, event.kind)))
    return {kind: _joined(line, pixel) for kind, line in bars.items()}


def _joined(bars: Iterable[_Bar], pixel: float) -> list[_Bar]:
    """The bars. A bar narrower than a pixel is joined with the previous bar, unless there is a pixel between them."""
    line: list[_Bar] = []
    for bar in bars:
        last = line[-1] if line else None
        if last and bar.start - last.end < pixel and min(bar.end - bar.start, last.end - last.start) < pixel:
            line[-1] = _Bar(last.start, max(last.end, bar.end), last.filled + bar.filled)
        else:
            line.append(bar)
    return line


def _draw(axes: style.Axes, place: int, kind: str, bars: Iterable[_Bar], shown: Timeline, size: float, pixel: float) -> None:
    spans: list[Interval] = []
    edges = []
    for bar in bars:
        start, end = max(bar.start, shown.start_us), min(bar.end, shown.end_us)
        if end < start:
            continue
        if bar.share < _SOLID:
            axes.bar(start / size, -0.72 * bar.share, (end - start) / size, place + 0.36, align="edge", color=_COLORS[kind])
            continue
        spans.append((start / size, max(end - start, pixel) / size))
        edges.append(0.5 if end - start > 4 * pixel else 0.0)  # tells neighbors apart where there is room
        letters = int((end - start) / pixel / _CHARACTER) - 1
        if bar.text and letters >= min(len(bar.text), 6):
            text = bar.text if len(bar.text) <= letters else f"{bar.text[: letters - 1]}…"
            axes.text((start + end) / 2 / size, place, text, ha="center", va="center", color=_INKS.get(kind, "white"))
    axes.broken_barh(spans, (place - 0.36, 0.72), facecolors=_COLORS[kind], edgecolors="white", linewidths=edges)


def _shade_gaps(axes: style.Axes, shown: Timeline, height: tuple[float, float], size: float, pixel: float) -> None:
    """Shade the times in which no stream worked, with the duration if there is room."""
    for start, end in shown.gaps(3 * pixel):
        axes.fill_betweenx(height, start / size, end / size, color=_IDLE, lw=0, zorder=0)
        text = time_text(end - start)
        if (end - start) / pixel >= _CHARACTER * (len(text) + 1):
            axes.text((start + end) / 2 / size, sum(height) / 2, text, ha="center", va="center", color="#555555")


def _legend(axes: style.Axes, kinds: set[str], device: str, *, idle: bool) -> None:
    from matplotlib.patches import Patch

    present = kinds - {"range", "operator", "call"}  # names of rows
    names = {} if device == "GPU" else {"kernel": f"{device} busy"}  # only a GPU has kernels
    handles = [Patch(color=color, label=names.get(kind, kind)) for kind, color in _COLORS.items() if kind in present]
    handles += [Patch(color=_IDLE, label=f"{device} idle")] if idle else []
    if handles:
        style.name_colors(axes, handles)
