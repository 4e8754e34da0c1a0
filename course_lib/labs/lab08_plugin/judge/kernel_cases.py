"""The rotations that a kernel must compute, with fresh numbers, and the largest error of a correct answer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.plugins import rope
from course_lib.plugins.launchers import DTYPES

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
# Numbers of a case have eight exponents. By type: the lowest and the highest first one of x, and of x and a table together, so that
# every result is finite and most are not 0.
_EXPONENTS = {"float32": (-40, 40, -60, 60), "float16": (-14, 8, -20, -2), "bfloat16": (-40, 40, -60, 60)}
_MANTISSA = {"float16": 10, "bfloat16": 7}
_LARGE = 300_000  # numbers of a large case, at least: 1024 threads, the most of a block, would write 293 each
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133}

Shape = tuple[int, int, int, int]
PLAIN: tuple[Shape, ...] = ((1, 1, 32, 128), (2, 16, 4, 64), (4, 2, 8, 256), (2, 64, 8, 128), (1, 1, 2, 1024))
ODD: tuple[Shape, ...] = (
    (3, 5, 7, 64),
    (1, 17, 3, 66),
    (5, 1, 9, 130),
    (1, 3, 33, 80),
    (2, 7, 5, 254),
    (7, 2, 1, 96),
    (1, 70000, 1, 2),
)


@dataclass(frozen=True)
class Case:
    """One rotation. Its numbers follow from its seed, here and in the program that runs the kernel.

    Attributes:
        shape: batch, sequence, heads, head size.
        dtype: a name of `DTYPES`.
        interleaved: which numbers form a pair, as in `course_lib.plugins.rope`.
        spare: rows of the tables beyond the sequence.
        shifted: 0, or 1 to 4 if x, cos, sin or y begins one number after an aligned address.
        watched: record each access of each thread.
        lowest_x, lowest_table: exponents of the smallest numbers. By default 1/32 <= |x| < 8 and 1/256 <= |cos|, |sin| < 1.
    """

    shape: Shape
    dtype: str
    interleaved: bool
    seed: int
    spare: int = 0
    shifted: int = 0
    watched: bool = False
    lowest_x: int = -5
    lowest_table: int = -8

    @property
    def plain(self) -> bool:
        """Whether the shape is one of `PLAIN` and every array is aligned."""
        return self.shape in PLAIN and not self.shifted

    @property
    def rows(self) -> int:
        """Rows of the tables cos and sin: the sequence and the spare ones."""
        return self.shape[1] + self.spare

    def __str__(self) -> str:
        where = f", {('x', 'cos', 'sin', 'y')[self.shifted - 1]} not aligned" if self.shifted else ""
        ends = (f"{name} up to {2.0 ** (low + 8):.0g}" for name, low in (("x", self.lowest_x), ("tables", self.lowest_table)))
        return f"{self.dtype}, shape {self.shape}, {'interleaved' if self.interleaved else 'halves'}{where}, {', '.join(ends)}"

    def wire(self) -> np.ndarray:
        """Thirteen int64, as `Case` in sandboxed/cuda. The last one is the stream, from which nothing else follows."""
        kind, stream = DTYPES.index(self.dtype), secrets.randbits(40) * 16 + 4096
        return np.array(
            [kind, self.interleaved, *self.shape, self.rows, self.seed, self.lowest_x, self.lowest_table,
             self.shifted, self.watched, stream], np.int64
        )  # fmt: skip

    def x(self) -> np.ndarray:
        """The numbers to rotate, float64 (exact), of the case's shape."""
        bits = drawn(np.arange(np.prod(self.shape), dtype=np.uint32), self.dtype, self.lowest_x, self.seed)
        return numbers(bits, self.dtype).reshape(self.shape)

    def token(self, number: int) -> np.ndarray:
        """The numbers of one token, shape (1, 1, heads, head size). Tokens are numbered across all sequences."""
        size = self.shape[2] * self.shape[3]
        index = np.arange(number * size, (number + 1) * size, dtype=np.uint32)
        return numbers(drawn(index, self.dtype, self.lowest_x, self.seed), self.dtype).reshape(1, 1, *self.shape[2:])

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, each float64 ``(rows, head size / 2)``. No angle has them, so a kernel that ignores the tables is wrong."""
        index = np.arange(self.rows * self.shape[3] // 2, dtype=np.uint32)
        both = (numbers(drawn(index, "float32", self.lowest_table, self.seed + i), "float32") for i in (1, 2))
        cos, sin = (table.reshape(self.rows, -1) for table in both)
        return cos, sin

    def excess(
        self, y: np.ndarray, x: np.ndarray | None = None, tables: tuple[np.ndarray, np.ndarray] | None = None
    ) -> np.ndarray:
        """Error of each number as a share of what is allowed: at most 1 for a kernel that computes in float32 and rounds once.

        With u = 2^-24, each product and the sum are off by at most u times their size, together 2u (|a cos| + |b sin|). The
        final rounding to a smaller type adds half a step of that type.

        Args:
            y: bits that the kernel wrote.
            x, tables: the rotated numbers; None means all of them.
        """
        x = self.x() if x is None else x
        cos, sin = tables or self.tables()
        exact = rope(x, cos, sin, interleaved=self.interleaved)
        opposite = (rope(np.abs(x), np.abs(cos), sign * np.abs(sin), interleaved=self.interleaved) for sign in (-1, 1))
        allowed = 2.0**-23 * np.maximum(*opposite)  # |a cos| + |b sin| for either half of a pair
        if self.dtype in _MANTISSA:
            step = 2.0 ** -(_MANTISSA[self.dtype] + 1)
            allowed += step * (np.abs(exact) + allowed) + _SMALLEST[self.dtype] / 2
        found = numbers(y, self.dtype).reshape(x.shape)
        return np.where(np.isfinite(found), np.abs(found - exact) / (allowed * (1 + 1e-6) + 2.0**-149), np.inf)


def drawn(index: np.ndarray, dtype: str, lowest: int, seed: int) -> np.ndarray:
    """Bit patterns of random numbers, of the shape of `index`: a hash of each index, as sandboxed/cuda draws them.

    Source: Appleby, MurmurHash3, the finalizer.
    """
    with np.errstate(over="ignore"):
        h = index * np.uint32(0x9E3779B1) + np.uint32(seed & 0xFFFFFFFF)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    sign, exponent, mantissa = h >> np.uint32(31), (h >> np.uint32(23)) & np.uint32(7), h & np.uint32(0x7FFFFF)
    if dtype == "float16":
        bits = sign << np.uint32(15) | (exponent + np.uint32(15 + lowest)) << np.uint32(10) | mantissa >> np.uint32(13)
        return bits.astype(np.uint16)
    bits = sign << np.uint32(31) | (exponent + np.uint32(127 + lowest)) << np.uint32(23) | mantissa
    return bits if dtype == "float32" else (bits >> np.uint32(16)).astype(np.uint16)


def numbers(bits: Any, dtype: str) -> np.ndarray:
    """Bit patterns of a type as float64, the same shape."""
    bits = np.asarray(bits)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(dtype).astype(np.float64)


def exponents(rng: np.random.Generator, dtype: str) -> tuple[int, int]:
    """Drawn sizes of a case's numbers: `lowest_x` and `lowest_table`."""
    low, high, both_low, both_high = _EXPONENTS[dtype]
    of_x, of_both = rng.integers(low, high, endpoint=True), rng.integers(both_low, both_high, endpoint=True)
    return int(of_x), int(of_both - of_x)


def cases(rng: np.random.Generator) -> list[Case]:
    """Plain and odd shapes in each type and convention, some of unaligned memory, all with fresh numbers of any size."""
    shapes = [(shape, 0) for shape in (*PLAIN, *ODD)] + [((2, 3, 4, 64), shifted) for shifted in (1, 2, 3, 4)]
    shapes += [(shape, 0) for shape in _drawn_shapes(rng)]
    return [
        Case(
            shape, dtype, interleaved, int(rng.integers(1 << 32)), int(rng.integers(3)), shifted, False, *exponents(rng, dtype)
        )
        for shape, shifted in shapes
        for dtype in DTYPES
        for interleaved in (False, True)
    ]


def _drawn_shapes(rng: np.random.Generator) -> list[Shape]:
    """A shape of usual sizes, one of many sequences, one of many heads, and one of large heads."""
    return [
        (int(rng.integers(1, 6)), int(rng.integers(1, 20)), int(rng.integers(1, 14)), 2 * int(rng.integers(32, 129))),
        (int(rng.integers(8, 1000)), int(rng.integers(1, 4)), int(rng.integers(1, 4)), 2 * int(rng.integers(1, 17))),
        (int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(34, 1000)), 2 * int(rng.integers(1, 17))),
        (int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 4)), 2 * int(rng.integers(1024, 2049))),
    ]


def large_cases(rng: np.random.Generator) -> list[Case]:
    """In each type and convention a case of which a single block of 1024 threads writes more than 256 numbers in each thread.

    Of the two conventions of a type, one has halves of whole packs of 16 bytes, and the other has halves of an odd size.
    """
    found = []
    for dtype in DTYPES:
        whole = bool(rng.integers(2))
        for interleaved in (False, True):
            batch, heads = int(rng.integers(5, 8)), int(rng.integers(5, 10))
            size = 32 * int(rng.integers(4, 9)) if interleaved == whole else 2 * (2 * int(rng.integers(32, 64)) + 1)
            sequence = _LARGE // (batch * heads * size) + int(rng.integers(1, 4))
            shape = (batch, sequence, heads, size)
            seed, spare = int(rng.integers(1 << 32)), int(rng.integers(3))
            found.append(Case(shape, dtype, interleaved, seed, spare, 0, False, *exponents(rng, dtype)))
    return found


def watched_cases(rng: np.random.Generator) -> list[Case]:
    """Cases whose accesses are recorded: in each type and convention one of any shape whose halves are whole sectors of 32 bytes.

    Every size is larger than the number of launches that is permitted.
    """
    return [
        Case(
            (int(rng.integers(5, 8)), int(rng.integers(7, 14)), int(rng.integers(5, 10)), 32 * int(rng.integers(2, 9))),
            dtype, interleaved, int(rng.integers(1 << 32)), int(rng.integers(3)), 0, True, *exponents(rng, dtype),
        )
        for dtype in DTYPES
        for interleaved in (False, True)
    ]  # fmt: skip
