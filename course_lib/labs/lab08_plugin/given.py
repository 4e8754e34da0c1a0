"""Rotations with fresh numbers: what a kernel is called with, what it must write, and the largest error of a correct answer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.plugins.launchers import DTYPES

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
BUFFERS = ("x", "cos", "sin", "positions", "y")
_ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # half a step of the type, relative
_SMALLEST = {"float32": 0.0, "float16": 2.0**-24, "bfloat16": 2.0**-133}

Shape = tuple[int, int, int, int]
# Shapes with the number of rotated numbers. In a plain shape every size is a power of two, and 16 bytes are either rotated or copied.
PLAIN: tuple[tuple[Shape, int], ...] = (
    ((1, 32, 1, 128), 32),
    ((2, 4, 16, 64), 32),
    ((4, 8, 2, 256), 64),
    ((2, 8, 64, 128), 64),
    ((1, 2, 4, 1024), 1024),
)
ODD: tuple[tuple[Shape, int], ...] = (
    ((3, 7, 5, 64), 20),
    ((1, 3, 17, 66), 66),
    ((5, 9, 1, 130), 2),
    ((1, 33, 3, 80), 36),
    ((2, 5, 7, 254), 128),
    ((7, 1, 2, 96), 94),
    ((1, 1, 70000, 2), 2),
)


@dataclass(frozen=True)
class Rotation:
    """One call of rotary_launch. Its numbers follow from its seed, here and in the program that runs the kernel.

    Attributes:
        shape: batch, heads, sequence, head size.
        rotary: numbers of a head that are rotated.
        dtype: a name of `DTYPES`.
        spare: rows of the tables beyond the sequence.
        shifted: 0, or 1 to 5 if that one of `BUFFERS` begins one number after an aligned address.
        watched: record each access of each thread.
    """

    shape: Shape
    rotary: int
    dtype: str
    seed: int
    spare: int = 0
    shifted: int = 0
    watched: bool = False

    @property
    def plain(self) -> bool:
        """Whether the shape is one of `PLAIN` and every array is aligned."""
        return (self.shape, self.rotary) in PLAIN and not self.shifted

    @property
    def rows(self) -> int:
        """Rows of the tables cos and sin."""
        return self.shape[2] + self.spare

    @property
    def count(self) -> int:
        """How many numbers x has."""
        return int(np.prod(self.shape))

    @property
    def heads(self) -> int:
        """How many heads x has, of all tokens together."""
        return self.count // self.shape[3]

    def __str__(self) -> str:
        where = f", {BUFFERS[self.shifted - 1]} not aligned" if self.shifted else ""
        return f"{self.dtype}, shape {self.shape}, {self.rotary} rotated{where}"

    def sizes(self) -> list[int]:
        """The first eight int64 of `Case` and `Question` in sandboxed/cuda."""
        return [DTYPES.index(self.dtype), *self.shape, self.rotary, self.rows, self.seed]

    def wire(self) -> bytes:
        """`Case` in sandboxed/cuda: `sizes`, whether it is shifted and watched, and a stream."""
        stream = secrets.randbits(40) * 16 + 4096
        return np.array([*self.sizes(), self.shifted, self.watched, stream, 0], np.int64).tobytes()

    def x(self, heads: np.ndarray, which: int = 0) -> np.ndarray:
        """The numbers of some heads, float64 ``(heads, head size)``.

        Args:
            heads: their numbers, int64: heads of one token count in the order of memory.
            which: of several sets of numbers.
        """
        size = self.shape[3]
        index = (heads[:, None] * size + np.arange(size)).astype(np.uint32)
        return numbers(drawn(index, self.dtype, -5, self.seed + 16 * which), self.dtype)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, each float64 ``(rows, rotary / 2)``. No angle has them, so a kernel that ignores the tables is wrong."""
        index = np.arange(self.rows * self.rotary // 2, dtype=np.uint32)
        cos, sin = (numbers(drawn(index, "float32", -8, self.seed + i), "float32").reshape(self.rows, -1) for i in (1, 2))
        return cos, sin

    def positions(self, heads: np.ndarray, first: int = 0) -> np.ndarray:
        """The position of the token of each of these heads.

        Args:
            first: number at which the array of positions begins.
        """
        _, of_token, sequence, _ = self.shape
        token = heads // (of_token * sequence) * sequence + heads % sequence
        return hashed((token + first).astype(np.uint32), self.seed + 3) % np.uint32(self.rows)

    def excess(self, y: np.ndarray, heads: np.ndarray | None = None, *, which: int = 0, first: int = 0) -> np.ndarray:
        """Error of each number as a share of what is allowed: at most 1 for a kernel that computes in float32 and rounds once.

        With u = 2^-24, each product and the sum are off by at most u times their size, together 2u (|a cos| + |b sin|). The
        final rounding to a smaller type adds half a step of that type. What is copied must be exact.

        Args:
            y: bits that the kernel wrote.
            heads, which, first: as for `x` and `positions`; None means all heads.
        """
        heads = np.arange(self.heads) if heads is None else heads
        x, position = self.x(heads, which), self.positions(heads, first)
        cos, sin = (table[position] for table in self.tables())
        exact, size = rotate(x, cos, sin), rotate(np.abs(x), np.abs(cos), np.abs(sin), sign=1)
        allowed = 2.0**-23 * size
        allowed += _ROUNDING[self.dtype] * (np.abs(exact) + allowed) + _SMALLEST[self.dtype] / 2
        allowed[:, self.rotary :] = 0
        found = numbers(y, self.dtype).reshape(x.shape)
        return np.where(np.isfinite(found), np.abs(found - exact) / (allowed * (1 + 1e-6) + 2.0**-149), np.inf)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, sign: int = -1) -> np.ndarray:
    """Rotate the pairs (2i, 2i + 1) of each row by its cosines and sines, and copy the numbers for which there are none.

    Args:
        x: ``(rows, head size)``.
        cos, sin: ``(rows, rotary / 2)``.
        sign: of the term ``b sin``; 1 gives the size of the two products.
    """
    y = x.copy()
    rotary = 2 * cos.shape[1]
    a, b = x[:, 0:rotary:2], x[:, 1:rotary:2]
    y[:, 0:rotary:2], y[:, 1:rotary:2] = a * cos + sign * b * sin, b * cos + a * sin
    return y


def hashed(index: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each index, as `mixed` in sandboxed/cuda. Source: Appleby, MurmurHash3, the finalizer."""
    with np.errstate(over="ignore"):
        h = index * np.uint32(0x9E3779B1) + np.uint32(seed & 0xFFFFFFFF)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return h ^ (h >> np.uint32(16))


def drawn(index: np.ndarray, dtype: str, lowest: int, seed: int) -> np.ndarray:
    """Bit patterns of random numbers, of the shape of `index`, with any sign and mantissa, and eight exponents from `lowest` on."""
    h = hashed(index, seed)
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


def rotations(rng: np.random.Generator) -> list[Rotation]:
    """Plain, odd and drawn shapes in each type, some with unaligned memory, and one with many numbers."""
    shapes = [(shape, rotary, 0) for shape, rotary in (*PLAIN, *ODD)]
    shapes += [((2, 4, 3, 64), 32, shifted) for shifted in range(1, len(BUFFERS) + 1)]
    for most in ((6, 14, 20, 129), (1000, 4, 4, 17), (4, 1000, 4, 17), (4, 4, 4, 2049)):
        *sizes, pairs = (int(rng.integers(max(1, size // 8), size)) for size in most)
        shapes.append(((sizes[0], sizes[1], sizes[2], 2 * pairs), 2 * int(rng.integers(1, pairs + 1)), 0))
    several = [(shape, rotary, dtype, shifted) for shape, rotary, shifted in shapes for dtype in DTYPES]
    several.append(((3, 8, 100, 128), 32, "float16", 0))  # a block of 1024 threads writes 300 numbers in each of them
    return [
        Rotation(shape, rotary, dtype, int(rng.integers(1 << 32)), int(rng.integers(3)), shifted)
        for shape, rotary, dtype, shifted in several
    ]


def watched_rotations(rng: np.random.Generator) -> list[Rotation]:
    """In each type a rotation whose accesses are recorded. Its heads are whole sectors of 32 bytes."""
    sizes = ((5, 8), (5, 10), (7, 14), (4, 9))
    drawn_sizes = [[int(rng.integers(*size)) for size in sizes] for _ in DTYPES]
    return [
        Rotation((batch, heads, sequence, 32 * parts), 16 * parts, dtype, int(rng.integers(1 << 32)), 2, 0, True)
        for (batch, heads, sequence, parts), dtype in zip(drawn_sizes, DTYPES, strict=True)
    ]
