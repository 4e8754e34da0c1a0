"""Lecture 8: a small service's requests, and figures of profiles over batch sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style

if TYPE_CHECKING:
    from course_lib.recipe import ShapeRange


LARGEST = 64  # digits that one request may hold
_KINDS = {  # what is sent, in digits, and how often; what is left are trays of many letters
    "a house number": ((1, 2, 3), (0.3, 0.45, 0.25), 0.18),
    "a postcode": ((5,), (1.0,), 0.52),
    "a postcode with its route": ((9,), (1.0,), 0.22),
}
_LETTERS = (4, 12)  # in a tray, five digits each


def mail_day(seed: int | None, *, requests: int = 4000) -> np.ndarray:
    """Sizes of the requests that a letter-sorting machine sends on one day, int64 ``(requests,)``, each 1 to `LARGEST`.

    A request is a house number, a postcode, a postcode with its delivery route, or a whole tray of letters.

    Args:
        seed: the same seed gives the same day; None gives a random one.
    """
    rng = np.random.default_rng(seed)
    shares = [share for _, _, share in _KINDS.values()]
    kind = rng.choice(len(_KINDS) + 1, size=requests, p=[*shares, 1 - sum(shares)])
    sizes = 5 * rng.integers(_LETTERS[0], _LETTERS[1] + 1, requests)  # trays; what is something else is overwritten
    for index, (digits, chances, _) in enumerate(_KINDS.values()):
        sizes = np.where(kind == index, rng.choice(digits, size=requests, p=chances), sizes)
    return sizes.astype(np.int64)


def padded_latency(latency_ms: Mapping[int, float]) -> dict[int, float]:
    """The cost of a request of each size in a service that may pad it: the smallest time of its size and of all larger ones.

    Disturbances of the machine only make a call slower. If a size was measured slower than a larger one, the time of the larger
    one is therefore the better estimate. A peak in the curve then does not become the limit of a profile.

    Args:
        latency_ms: milliseconds of a call by size.
    """
    price: dict[int, float] = {}
    least = float("inf")
    for size in sorted(latency_ms, reverse=True):
        least = price[size] = min(least, latency_ms[size])
    return dict(sorted(price.items()))


Sizes = tuple[int, int]


def latency_over_size(
    latency_ms: Mapping[int, float],
    shapes: ShapeRange,
    *,
    rejected: Sequence[int] = (),
    item: str = "item",
) -> style.Figure:
    """Time of one call, and of one item in it, over the batch size, with the profile's range.

    Args:
        latency_ms: milliseconds of a call by size, for the sizes that the engine answered.
        shapes: the profile's range for the input.
        rejected: sizes that the engine rejected.
        item: name of one item in a batch.
    """
    low, best, high = (bound[0] for bound in (shapes.min, shapes.opt, shapes.max))
    sizes = sorted(latency_ms)
    calls = np.array([latency_ms[size] for size in sizes])
    each = calls / sizes
    figure, panels = style.subplots(5.0, 2)
    rows = ((calls, "time of a call (ms)"), (each, f"time for one {item} (ms)"))
    for axes, (values, label) in zip(panels, rows, strict=True):
        axes.axvspan(low, high, color=style.color(2), alpha=0.13, lw=0, label=f"profile: {low} to {high}")
        axes.axvline(best, color=style.color(4), ls="--", label=f"opt: {best}")
        axes.plot(sizes, values, "o-", ms=4, color=style.color(0), label="answered")
        if rejected:
            axes.plot(rejected, [0] * len(rejected), "x", color=style.color(1), label="rejected", clip_on=False, zorder=3)
        axes.set(ylabel=label, ylim=(0, 1.12 * values.max()), xlim=(0, None))
    axes.set_xlabel("batch size")
    style.name_colors(figure.axes[0])
    cheapest = sizes[int(np.argmin(each))]
    figure.suptitle(f"Profile from {low} to {high}; the time per {item} is shortest at batch {cheapest}")
    return figure


def latency_map(
    latency_ms: Mapping[Sizes, float], boxes: Mapping[str, tuple[Sizes, Sizes]] | None = None, *, names: tuple[str, str]
) -> style.Figure:
    """Draw the time of a call over two dimensions, one cell per measured shape, with profiles as frames around their cells.

    Args:
        latency_ms: milliseconds by the sizes of both dimensions, for a full grid of sizes.
        boxes: profiles by name, each with the smallest and the largest sizes that it accepts.
        names: names of the two dimensions.
    """
    from matplotlib.colors import LogNorm

    rows, columns = (sorted({sizes[axis] for sizes in latency_ms}) for axis in (0, 1))
    values = np.array([[latency_ms[row, column] for column in columns] for row in rows])
    figure, axes = style.subplots(0.5 * len(rows) + 1.6)
    image = axes.imshow(values, cmap="Blues", norm=LogNorm(), origin="lower", aspect="auto")
    figure.colorbar(image, ax=axes, label="time of a call (ms)")
    middle = np.sqrt(values.min() * values.max())
    for (y, x), value in np.ndenumerate(values):
        ink = "white" if value > 2 * middle else style.BLACK_ON_COLOR
        axes.text(x, y, f"{value:.3g}", ha="center", va="center", fontsize=8, color=ink)
    for index, (name, (low, high)) in enumerate((boxes or {}).items()):
        _frame(axes, rows, columns, low, high, style.color(index + 1), f"{name}: {_spell(low)} to {_spell(high)}")
    axes.set_xticks(range(len(columns)), [str(size) for size in columns])
    axes.set_yticks(range(len(rows)), [str(size) for size in rows])
    axes.set(ylabel=names[0], xlabel=names[1])
    if axes.patches:
        style.name_colors(axes)
    small, large = (rows[0], columns[0]), (rows[-1], columns[-1])
    axes.set_title(
        f"{_spell(large)} holds {large[0] * large[1] / (small[0] * small[1]):.0f} times as much as {_spell(small)} "
        f"and takes {latency_ms[large] / latency_ms[small]:.0f} times as long"
    )
    return figure


def _frame(
    axes: style.Axes, rows: Sequence[int], columns: Sequence[int], low: Sizes, high: Sizes, color: str, label: str
) -> None:
    """Draw a frame around the cells with sizes in the box. The corners of a cell are half a step from its center."""
    from matplotlib.patches import Rectangle

    inside_y = [index for index, size in enumerate(rows) if low[0] <= size <= high[0]]
    inside_x = [index for index, size in enumerate(columns) if low[1] <= size <= high[1]]
    if inside_y and inside_x:
        width, height = len(inside_x) - 0.1, len(inside_y) - 0.1
        corner = (inside_x[0] - 0.45, inside_y[0] - 0.45)
        axes.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=color, lw=2.5, label=label))


def _spell(sizes: Sizes) -> str:
    return f"{sizes[0]} x {sizes[1]}"


def traffic(sizes: np.ndarray, ends: Sequence[int] = (), *, name: str = "batch", title: str = "") -> style.Figure:
    """Draw the number of requests of each size; with `ends`, colored by the profile that serves it.

    Args:
        sizes: one for each request, ``(n,)``.
        ends: the largest size of each profile, in ascending order. A request goes to the first profile that is large enough.
        name: name of the dimension.
        title: the takeaway; by default the most frequent size and its share.
    """
    values, counts = np.unique(sizes, return_counts=True)
    taken = np.searchsorted(np.array(ends, dtype=float), values)
    figure, axes = style.subplots(2.7)
    for index in np.unique(taken):
        mine = taken == index
        share = 100 * counts[mine].sum() / len(sizes)
        where = f"padded to {ends[index]}" if index < len(ends) else "rejected" if ends else "requests"
        axes.bar(values[mine], counts[mine], color=style.color(int(index)), label=f"{where}: {share:.0f} %")
    for end in ends:
        axes.axvline(end + 0.5, color="#777777", lw=0.8, ls="--")
    axes.set(xlabel=f"{name} size of the request", ylabel="requests", xlim=(0, max(values.max(), *ends, 1) + 1))
    if ends:
        style.name_colors(axes)
    most = int(np.argmax(counts))
    axes.set_title(
        title
        or f"Size {values[most]} is {100 * counts[most] / len(sizes):.0f} % of the requests, the largest is {values.max()}"
    )
    return figure


def cost_over_split(cost_ms: Mapping[int, float], one_ms: float, exact_ms: float) -> style.Figure:
    """Mean time of a request with two profiles, over the size at which the first one ends.

    Args:
        cost_ms: milliseconds by the largest size of the first profile.
        one_ms: with one profile for all sizes.
        exact_ms: if no request were padded.
    """
    ends = sorted(cost_ms)
    best = min(ends, key=cost_ms.__getitem__)
    figure, axes = style.subplots(2.8)
    axes.axhline(one_ms, color=style.color(1), ls="--", label=f"one profile: {one_ms:.2f} ms")
    axes.plot(
        ends, [cost_ms[end] for end in ends], color=style.color(0), label=f"two profiles: {cost_ms[best]:.2f} ms at {best}"
    )
    axes.plot(best, cost_ms[best], "o", color=style.color(0))
    axes.axhline(exact_ms, color=style.color(2), ls=":", label=f"without padding: {exact_ms:.2f} ms")
    axes.set(xlabel="largest size of the first profile", ylabel="mean cost of a request (ms)", ylim=(0, 1.1 * one_ms))
    style.name_lines(axes)
    saved = 100 * (1 - cost_ms[best] / one_ms)
    axes.set_title(f"The best boundary between two profiles saves {saved:.0f} %")
    return figure
