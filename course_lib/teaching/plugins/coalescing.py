"""The memory traffic of a warp's loads: a model that counts sectors, without a cache.

The threads of a warp run in step, so their loads by one instruction form one request. Memory answers a request in whole
sectors. Source: NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from course_lib import style

WARP = 32  # threads
SECTOR = 32  # bytes


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


def request_figure(requests: Sequence[Request], title: str) -> style.Figure:
    """A strip for each request: its sectors one after another, gray where they are fetched, blue where a thread needs a byte.

    Args:
        requests: drawn from top to bottom.
        title: the takeaway.
    """
    import numpy as np

    figure, axes = style.subplots(0.9 + 0.48 * len(requests))
    most = max(len(one.sectors) for one in requests)
    for row, one in enumerate(requests):
        place = {sector: index * SECTOR for index, sector in enumerate(one.sectors)}
        axes.barh([row] * len(place), SECTOR, 0.8, left=list(place.values()), color="#cccccc", edgecolor="white", lw=0.8,
                  label="" if row else "fetched")  # fmt: skip
        needed = sorted(
            {place[byte // SECTOR] + byte % SECTOR for offset in one.offsets for byte in range(offset, offset + one.size)}
        )
        runs = np.split(needed, np.flatnonzero(np.diff(needed) > 1) + 1)
        sizes = [max(len(run), most * SECTOR / 400) for run in runs]  # a sliver stays visible
        axes.barh([row] * len(runs), sizes, 0.5, left=[run[0] for run in runs], color=style.color(0),
                  label="" if row else "needed by a thread")  # fmt: skip
    names = [f"{one.name}\n{len(one.sectors)} sectors, {100 * one.used:.0f} % needed" for one in requests]
    style.name_rows(axes, names)
    axes.set(xlim=(0, most * SECTOR), xlabel="bytes (a model without caches)")
    style.name_colors(axes)
    axes.set_xticks(range(0, most * SECTOR + 1, most * SECTOR // 4))
    axes.spines["left"].set_visible(False)
    axes.set_title(title)
    return figure
