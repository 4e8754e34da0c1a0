"""How a product's weight can be stored in lab 14: INT4 in blocks, FP8 with one scale, or FP16 as it is given."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from course_lib.errors import CourseError
from course_lib.labs.lab14_four_bits.network import PRODUCTS

BLOCKS = (16, 32, 64, 96, 192)  # sizes that a block may have, if they divide the number of inputs
LARGEST_E4M3 = 448.0


def _fits(scales: tuple[int, ...], weight: tuple[int, int]) -> bool:
    """Whether scales of this shape are those of a weight ``(in, out)``."""
    return scales in [(weight[0] // block, weight[1]) for block in BLOCKS if weight[0] % block == 0]


@dataclass(frozen=True)
class Int4:
    """A weight in INT4: each value is ``code * scale``, and the weights of a block share a scale.

    Attributes:
        packed: uint8 ``(in * out / 2,)``: the codes of the weight ``(in, out)``, row by row, as ONNX packs INT4.
        scales: ``(in / block, out)``; a file stores them in FP16.
    """

    packed: np.ndarray
    scales: np.ndarray

    @property
    def bits(self) -> int:
        """What a file stores, without the names."""
        return 8 * self.packed.size + 16 * self.scales.size

    def codes(self) -> np.ndarray:
        """The codes, int8 ``(in, out)``.

        Raises:
            CourseError: no product has such codes and scales.
        """
        if problem := self.problem(PRODUCTS.values()):
            raise CourseError(problem)
        values = np.stack([self.packed & 15, self.packed >> 4], axis=1).ravel()
        return (((values ^ 8).astype(np.int8)) - 8).reshape(-1, self.scales.shape[1])

    def problem(self, shapes: Collection[tuple[int, int]], name: str = "") -> str:
        """What does not fit in codes and scales, "" if they are those of a weight ``(in, out)`` of one of these shapes.

        The type comes first: a wrong one changes the number of bytes, too.

        Args:
            name: of the product, for the message.
        """
        packed, scales, of = np.asarray(self.packed), np.asarray(self.scales), f" of {name}" if name else ""
        if packed.dtype != np.uint8:
            return f"the packed codes{of} are {packed.dtype}, expected uint8, as pack returns them"
        sizes = sorted({rows * columns // 2 for rows, columns in shapes})
        if packed.shape not in [(size,) for size in sizes]:
            wide = [times for times in (8, 4, 2) if packed.size // times in sizes and packed.size % times == 0]
            advice = {
                8: "pack takes int8 codes, not int64",
                4: "pack takes int8 codes, not float32",
                2: "two codes share a byte",
            }
            said = f"the packed codes{of} have the shape {packed.shape}, expected one axis with {' or '.join(map(str, sizes))} bytes"
            return f"{said}: {advice[wide[0]]}" if wide else said
        fitting = [(rows, columns) for rows, columns in dict.fromkeys(shapes) if rows * columns // 2 == packed.size]
        if not any(_fits(scales.shape, shape) for shape in fitting):
            wanted = " or ".join(f"({rows} / block, {columns})" for rows, columns in fitting)
            blocks = ", ".join(map(str, BLOCKS))
            turned = any(_fits(scales.shape[::-1], shape) for shape in fitting)
            said = (
                f"the scales{of} have the shape {scales.shape}, expected (in / block, out) = {wanted} with a block of {blocks}"
            )
            return f"{said}. search returns (out, in / block): transpose them" if turned else said
        return ""

    def values(self) -> np.ndarray:
        """The weight that is stored, float32 ``(in, out)``."""
        codes = self.codes()
        return codes * np.repeat(self.scales.astype(np.float32), len(codes) // len(self.scales), axis=0)


@dataclass(frozen=True)
class Fp8:
    """A weight in FP8, with one scale for all of it.

    Attributes:
        codes: the bits of E4M3 numbers, uint8 ``(in, out)``.
        scale: a file stores it in FP16.
    """

    codes: np.ndarray
    scale: float

    @property
    def bits(self) -> int:
        """What a file stores, without the names."""
        return 8 * self.codes.size + 16

    def values(self) -> np.ndarray:
        """The weight that is stored, float32 ``(in, out)``."""
        import ml_dtypes

        return self.codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(np.float16(self.scale))


@dataclass(frozen=True)
class Half:
    """A weight in FP16, as it is given: `numbers` is ``(in, out)``."""

    numbers: np.ndarray

    @property
    def bits(self) -> int:
        """What a file stores, without the names."""
        return 16 * self.numbers.size

    def values(self) -> np.ndarray:
        """The weight that is stored, float32 ``(in, out)``."""
        return self.numbers.astype(np.float32)


Stored: TypeAlias = Int4 | Fp8 | Half


def fp8(weight: Any) -> Fp8:
    """A weight ``(out, in)`` in FP8: the largest magnitude gets the largest code, as in lecture 16."""
    import ml_dtypes

    values = np.asarray(weight, np.float32).T
    scale = np.float32(np.float16(max(float(np.abs(values).max()) / LARGEST_E4M3, 2.0**-24)))
    codes = np.clip(values / scale, -LARGEST_E4M3, LARGEST_E4M3).astype(ml_dtypes.float8_e4m3fn)
    return Fp8(np.ascontiguousarray(codes).view(np.uint8), float(scale))
