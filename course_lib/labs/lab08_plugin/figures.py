"""The figure of lab 08: the bytes of a sector that threads need."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np

from course_lib import style
from course_lib.labs.lab08_plugin.given import SECTOR, WARP, Run, X, requests

_ROWS = 40


def sectors_figure(runs: Mapping[str, Run]) -> style.Figure:
    """The first request of the first warp for x: one row for each 32-byte sector that memory must fetch, colored at the needed bytes.

    Args:
        runs: runs with recorded accesses, by title.
    """
    figure = style.figure(3.4)
    axes = None
    for place, (title, run) in enumerate(runs.items()):
        axes = figure.add_subplot(1, len(runs), place + 1, sharey=axes)
        sectors = _needed(run)
        shown = (
            np.vstack([sectors, np.full((_ROWS - len(sectors), SECTOR), np.nan)]) if len(sectors) < _ROWS else sectors[:_ROWS]
        )
        picture = axes.imshow(shown, aspect="auto", vmin=0, vmax=WARP - 1, cmap="viridis", interpolation="nearest")
        axes.axhline(len(sectors) - 0.5, color="black", lw=0.8)
        axes.set_facecolor("white")
        axes.axhspan(-0.5, len(sectors) - 0.5, color="#dddddd", zorder=-1)
        needed = 100 * np.isfinite(sectors).mean()
        name = textwrap.fill(title, 11)
        axes.set_title(f"{name}\n{len(sectors)} sectors,\n{needed:.0f} % needed", fontsize=8, weight="normal")
    figure.supxlabel("byte of the sector", fontsize=9)
    figure.axes[0].set_ylabel("sector fetched")
    figure.colorbar(picture, ax=figure.axes, label="thread of the warp")
    return figure


def _needed(run: Run) -> np.ndarray:
    """For each byte in the sectors of the first warp's first request, the thread that reads it; NaN if none does."""
    found = run.accesses[(run.accesses["buffer"] == X) & (run.accesses["block"] == 0) & (run.accesses["thread"] < WARP)]
    first = found[requests(found) == requests(found)[0]]
    at = first["offset"].astype(np.int64)
    rows = np.unique(np.concatenate([at // SECTOR, (at + first["size"] - 1) // SECTOR]))
    sectors = np.full((len(rows), SECTOR), np.nan)
    for thread, offset, size in zip(first["thread"], at, first["size"], strict=True):
        for byte in range(offset, offset + size):
            sectors[np.searchsorted(rows, byte // SECTOR), byte % SECTOR] = thread
    return sectors
