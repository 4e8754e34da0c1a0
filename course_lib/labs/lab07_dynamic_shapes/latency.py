"""The latency of every shape of lab 07's service, from measurements of a few of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from course_lib._util.progress_bar import track
from course_lib.labs.lab07_dynamic_shapes.service import Box
from course_lib.labs.lab07_dynamic_shapes.traffic import LARGEST

GRID = tuple((b, s) for b in (1, 2, 4, 8, 12, 16) for s in (4, 16, 32, 64, 96, 128))


def measured(time_ms: Callable[[Box], float], *, repeats: int = 3, progress: bool = False) -> np.ndarray:
    """Latency in milliseconds of every shape, ``(16, 128)``: the shapes of `GRID` are timed, and the others are interpolated.

    The fastest of `repeats` counts, because other load on the machine can only slow a call down.
    """
    rounds = [
        {box: time_ms(box) for box in GRID} for _ in track(range(1 + repeats), "timing shapes", shown=progress)
    ]  # the first round warms up: a call of a new shape may allocate
    return interpolated({box: min(one[box] for one in rounds[1:]) for box in GRID})


def interpolated(known: Mapping[Box, float]) -> np.ndarray:
    """Bilinear between the points of a grid and constant beyond it, ``(16, 128)``."""
    batches, lengths = (sorted({box[axis] for box in known}) for axis in (0, 1))
    rows = [np.interp(np.arange(1, LARGEST[1] + 1), lengths, [known[b, s] for s in lengths]) for b in batches]
    columns = [np.interp(np.arange(1, LARGEST[0] + 1), batches, column) for column in np.array(rows).T]
    return np.array(columns).T
