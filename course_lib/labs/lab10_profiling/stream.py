"""The work of lab 10's pipeline: requests of scans in the network format, and their transfer to the pipeline's process."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from course_lib.models import fresh_digits

Stream = Mapping[str, np.ndarray]
SCAN = 64  # pixels along each side
_NOISE = 3  # gray levels that a scanner is off by, at most


def fresh_stream(sizes: Sequence[int], rng: np.random.Generator) -> Stream:
    """Requests of the given numbers of fresh scans.

    A scan is `SCAN` x `SCAN` gray levels in uint8, 0 is black and 255 is paper, row by row, compressed with zlib.

    Returns:
        ``bytes``, all scans in sequence, uint8; ``lengths``, bytes of each scan; ``sizes``, scans of each request; int64.
    """
    scans = [] if sum(sizes) == 0 else [zlib.compress(scan.tobytes()) for scan in _scans(sum(sizes), rng)]
    return {
        "bytes": np.frombuffer(b"".join(scans), np.uint8),
        "lengths": np.array([len(scan) for scan in scans], np.int64),
        "sizes": np.array(sizes, np.int64),
    }


def _scans(n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    ink = fresh_digits(n, seed=int(rng.integers(1 << 31))).images[:, 0].repeat(2, axis=1).repeat(2, axis=2)
    gray = 255 * (1 - ink) + rng.integers(-_NOISE, _NOISE + 1, ink.shape)
    yield from gray.clip(0, 255).astype(np.uint8)


def usual_sizes(rng: np.random.Generator, requests: int = 8) -> list[int]:
    """Numbers of scans in the requests of the service: 8 to 32, 20 on average."""
    return [int(n) for n in rng.integers(8, 33, requests)]
