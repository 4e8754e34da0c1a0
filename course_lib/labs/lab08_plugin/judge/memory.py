"""The memory efficiency of a kernel, from the recorded accesses of its threads, counted as Nsight Compute does on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_lib.labs.lab08_plugin.judge.kernel import Run
from course_lib.labs.lab08_plugin.judge.kernel_cases import WIDTHS

WARP = 32  # threads that run in step and whose accesses become one request
SECTOR = 32  # bytes: the smallest piece that a GPU fetches
X, Y = 0, 3  # numbers of the buffers


@dataclass(frozen=True)
class Traffic:
    """Accesses of the threads of one launch to memory, summed up.

    Attributes:
        writers: threads that wrote a part of y.
        read_once, written_once: whether each number of x was read, and each number of y written, exactly once.
        used: share of the fetched and stored 32-byte sectors that the requests of a warp needed, 1.0 at best.
        width: bytes of x and y that a thread moves at once, on average; 16 is the most that CUDA can.
        table_reads: average number of reads of each number of cos and sin that the sequence needs, for each head of a batch.
    """

    writers: int
    read_once: bool
    written_once: bool
    used: float
    width: float
    table_reads: float


def traffic(run: Run) -> Traffic:
    """Judge a run whose accesses were recorded."""
    found = run.accesses
    big = found[(found["buffer"] == X) | (found["buffer"] == Y)]
    reads, writes = (big[big["is_write"] == is_write] for is_write in (False, True))
    size = int(np.prod(run.case.shape)) * WIDTHS[run.case.dtype]
    tables = found[~np.isin(found["buffer"], (X, Y))]
    return Traffic(
        writers=len(np.unique(writes["block"].astype(np.uint64) << np.uint64(32) | writes["thread"])),
        read_once=_each_once(reads[reads["buffer"] == X], size) and bool((reads["buffer"] == X).all()),
        written_once=_each_once(writes, size),
        used=_used(big),
        width=float(big["size"].mean()) if len(big) else 0.0,
        table_reads=float(tables["size"].sum()) / (2 * 4 * int(np.prod(run.case.shape)) // 2),
    )


def requests(found: np.ndarray) -> np.ndarray:
    """For each access the number of its request, int64 ``(accesses,)``.

    The threads of a warp run in step: their n-th accesses by one instruction form one request.

    Args:
        found: accesses of dtype `ACCESS`, ``(accesses,)``.
    """
    order = np.lexsort((found["site"], found["thread"], found["block"]))
    keys = found[order]
    begins = _begins(keys["block"], keys["thread"], keys["site"])
    place = np.arange(len(keys))
    nth = np.empty(len(keys), np.int64)
    nth[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return _numbered(found["block"], found["thread"] // WARP, found["site"], nth)


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """A number for each row of `columns`, the same for equal rows."""
    order = np.lexsort(columns)
    numbered = np.empty(len(order), np.int64)
    numbered[order] = np.cumsum(_begins(*(column[order] for column in columns))) - 1
    return numbered


def _begins(*columns: np.ndarray) -> np.ndarray:
    """Whether each row differs from the previous one."""
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def _used(found: np.ndarray) -> float:
    if not len(found):
        return 0.0
    first = found["offset"].astype(np.int64) // SECTOR
    last = (found["offset"].astype(np.int64) + found["size"] - 1) // SECTOR
    which = np.tile(requests(found), 2)
    touched = _numbered(which, np.tile(found["buffer"], 2), np.concatenate([first, last]))
    return float(found["size"].sum() / (SECTOR * (touched.max() + 1)))


def _each_once(found: np.ndarray, size: int) -> bool:
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, found["offset"], 1)
    np.add.at(change, found["offset"] + found["size"].astype(np.uint32), -1)
    return bool((np.cumsum(change)[:-1] == 1).all())
