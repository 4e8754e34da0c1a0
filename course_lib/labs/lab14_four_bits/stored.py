"""How a product's weight can be stored in lab 14: INT4 in blocks, FP8 with one scale, or FP16 as it is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

BLOCKS = (16, 32, 64, 96, 192)  # sizes that a block may have, if they divide the number of inputs
LARGEST_E4M3 = 448.0


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
        """The codes, int8 ``(in, out)``."""
        values = np.stack([self.packed & 15, self.packed >> 4], axis=1).ravel()
        return (((values ^ 8).astype(np.int8)) - 8).reshape(-1, self.scales.shape[1])

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
