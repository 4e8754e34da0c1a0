"""Memory-bound work on inputs that are in a cache, and on inputs that are not."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from course_lib import style

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_TENSOR_KIB, _SECONDS = 256, 0.15  # of one float32 tensor; of the measurement for each size
_UNITS = {"K": 2**-10, "M": 1.0, "G": 2.0**10}


def caches_mib(folder: Path = _CACHES) -> dict[str, float]:
    """Sizes of the first core's data caches in MiB, such as ``{"L1": 0.03, ...}``. Empty if Linux does not report them."""
    found = {}
    for index in sorted(folder.glob("index*")):
        kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction" and (match := re.fullmatch(r"(\d+)([KMG])", size)):
            found[f"L{level}"] = int(match[1]) * _UNITS[match[2]]
    return found


def largest_us(sizes_mib: Iterable[float]) -> dict[float, float]:
    """Time to find the largest value of a tensor, in microseconds, by the size of the pool from which the tensors are taken in turn.

    With a pool of one tensor, every call has the same input.

    Args:
        sizes_mib: sizes of the pool in MiB; each holds at least one tensor.
    """
    return {size: _largest_us(max(1, round(size * 1024 / _TENSOR_KIB))) for size in sizes_mib}


def _largest_us(tensors: int) -> float:
    """The median of the passes over the pool."""
    rng = np.random.default_rng(0)
    pool = np.tile(rng.standard_normal(256 * _TENSOR_KIB, np.float32), (tensors, 1))
    in_turn = [pool[index] for index in rng.permutation(tensors)]
    passes: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(passes) < 3 or time.perf_counter() < end:
        started = time.perf_counter()
        for tensor in in_turn:
            tensor.max()
        passes.append(1e6 * (time.perf_counter() - started) / tensors)
    return float(np.median(passes))


def draw_rotation(found: dict[float, float], caches: dict[str, float]) -> style.Figure:
    """Time of one call over the size of the pool, with the caches' sizes as lines.

    Args:
        found: result of `largest_us`.
        caches: result of `caches_mib`.
    """
    sizes, times = list(found), list(found.values())
    figure, axes = style.subplots(3.2)
    axes.semilogx(sizes, times, "o-", base=2, color=style.color(0))
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_ylim(0, 1.15 * max(times))
    marks = {f"{name}: {size:g} MiB": size for name, size in caches.items() if sizes[0] <= size <= sizes[-1]}
    style.mark_values(axes, marks, ["#777777"] * len(marks))
    axes.set(xlabel="inputs are taken in turn from a pool of this size (MiB)", ylabel="time of one call (us)")
    axes.set_title(f"The same work: {times[0]:.0f} us on one repeated input, {times[-1]:.0f} us on inputs from a large pool")
    return figure
