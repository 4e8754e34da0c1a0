"""The memory traffic of a warp's loads: a model that counts sectors, without a cache.

The threads of a warp run in step, so their loads by one instruction form one request. Memory answers a request in whole
sectors. Source: NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from course_lib import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WARP = 32  # threads
SECTOR = 32  # bytes
SHOWN = 512  # bytes that a figure shows


@dataclass(frozen=True)
class Request:
    """One load of a warp.

    Attributes:
        name: access pattern of its threads.
        offsets: the first byte of each thread, from an address that is a multiple of `SECTOR`.
        size: bytes that each thread loads.
    """

    name: str
    offsets: tuple[int, ...]
    size: int

    @property
    def sectors(self) -> tuple[int, ...]:
        """Numbers of the sectors that memory has to fetch, ascending."""
        return tuple(sorted({byte // SECTOR for offset in self.offsets for byte in range(offset, offset + self.size)}))

    @property
    def used(self) -> float:
        """Share of the fetched bytes that a thread requested, 1.0 at best."""
        asked = {byte for offset in self.offsets for byte in range(offset, offset + self.size)}
        return len(asked) / (SECTOR * len(self.sectors))


def request(name: str, offset: Callable[[int], int], size: int) -> Request:
    """A warp's request, given by a function from a thread's number to its first byte."""
    offsets = tuple(offset(thread) for thread in range(WARP))
    return Request(name, offsets, size)


def request_figure(requests: Sequence[Request], title: str) -> Figure:
    """A strip of memory for each request: gray where a sector is fetched, colored by thread where a byte is needed.

    Args:
        requests: drawn from top to bottom, their first `SHOWN` bytes.
        title: the takeaway.
    """
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    figure = style.figure(0.9 + 0.48 * len(requests))
    axes = figure.add_subplot()
    colors = ScalarMappable(Normalize(0, WARP - 1), colormaps["viridis"])
    shades = colors.to_rgba(np.arange(WARP))
    for row, one in enumerate(requests):
        _strip(axes, row, one, shades)
    axes.set_yticks(range(len(requests)), [one.name for one in requests])
    axes.set(xlim=(0, SHOWN), ylim=(len(requests) - 0.5, -0.5), xticks=range(0, SHOWN + 1, 128))
    axes.set_xlabel(f"byte (of a model without caches; the first {SHOWN} bytes)")
    axes.set_title(title)
    axes.spines["left"].set_visible(False)
    figure.colorbar(colors, ax=axes, label="thread of the warp", pad=0.2, aspect=12)
    return figure


def _strip(axes: Axes, row: int, one: Request, shades: Any) -> None:
    fetched = [(sector * SECTOR, SECTOR) for sector in one.sectors if sector * SECTOR < SHOWN]
    axes.broken_barh(fetched, (row - 0.36, 0.72), facecolors="#d8d8d8", edgecolors="white", linewidths=0.6)
    needed = [(thread, offset) for thread, offset in enumerate(one.offsets) if offset < SHOWN]
    places = [(offset, one.size) for _, offset in needed]
    axes.broken_barh(places, (row - 0.26, 0.52), facecolors=[shades[thread] for thread, _ in needed])
    axes.text(1.01 * SHOWN, row, f"{len(one.sectors)} sectors\n{one.used:.0%} needed", va="center", fontsize=8)
