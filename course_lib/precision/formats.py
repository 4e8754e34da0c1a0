"""Number formats of inference: the fields of each format, the numbers that it can represent, and the error of rounding to it.

A floating-point number is ``(-1)**sign * 1.mantissa * 2**(exponent - bias)``. The bits of the exponent set the range of a format,
and the bits of the mantissa set how finely it divides each power of two. INT8 has neither: it has 256 equal steps of a chosen size.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike

from course_lib.precision.quantization.qdq import fake_quantize


@dataclass(frozen=True)
class Format:
    """One number format.

    Attributes:
        name: such as ``"FP16"``.
        exponent_bits, mantissa_bits: number of bits besides the sign bit; INT8 has 0 and 7.
        largest: the largest finite number.
        smallest_normal: below it, numbers lose mantissa bits one by one (subnormal numbers).
        smallest: the smallest number above zero.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    largest: float
    smallest_normal: float
    smallest: float

    def round(self, values: ArrayLike) -> np.ndarray:
        """The nearest number of the format for each value, float64, same shape; of two equally near ones the even one.

        Beyond the largest number a cast gives infinity; in FP8 E4M3, which has no infinity, NaN; INT8 clips.
        """
        wide = np.asarray(values, np.float64)
        if self.name == "INT8":
            return fake_quantize(wide, 127 * self.smallest).astype(np.float64)
        if self.name == "TF32":
            return _tf32(wide).view(np.float32).astype(np.float64)
        with np.errstate(over="ignore", under="ignore"):
            return wide.astype(_DTYPES[self.name]).astype(np.float64)

    def bits(self, value: float) -> tuple[str, str, str]:
        """Sign, exponent and mantissa of the nearest number, each as a string of zeros and ones."""
        if self.name == "INT8":
            pattern = f"{round(float(self.round(value)) / self.smallest) & 0xFF:08b}"
        elif self.name == "TF32":
            pattern = f"{int(_tf32(np.asarray(value, np.float64))):032b}"[:19]
        else:
            with np.errstate(over="ignore", under="ignore"):
                stored: np.ndarray = np.array([value], np.float64).astype(_DTYPES[self.name])
            width = 8 * stored.itemsize
            pattern = f"{int(stored.view(f'uint{width}')[0]):0{width}b}"
        border = 1 + self.exponent_bits
        return pattern[0], pattern[1:border], pattern[border:]

    def count(self, low: float, high: float) -> int:
        """Number of values of the format in ``[low, high]``, 0 < low <= high."""
        return int(np.floor(self._place(min(high, self.largest))) - np.ceil(self._place(low))) + 1

    def _place(self, value: float) -> float:
        """0 for zero, 1 for the smallest positive number and so on; between two numbers a fraction."""
        if self.name == "INT8":
            return value / self.smallest
        binade = max(0, round(np.frexp(value)[1] - 1 - np.log2(self.smallest_normal)))
        return value / (self.smallest * 2.0**binade) + binade * 2.0**self.mantissa_bits


def int8(scale: float) -> Format:
    """INT8 in steps of ``scale``.

    Raises:
        ValueError: a scale that is not positive and finite.
    """
    if not 0 < scale < np.inf:
        raise ValueError(f"a scale is positive and finite, got {scale}")
    return Format("INT8", 0, 7, 127 * scale, scale, scale)


def _tf32(values: np.ndarray) -> np.ndarray:
    """Bits of float32 numbers whose last 13 bits of mantissa are rounded away, half to even; as uint32."""
    with np.errstate(over="ignore", under="ignore"):
        bits = values.astype(np.float32).view(np.uint32)
    odd = (bits >> np.uint32(13)) & np.uint32(1)
    return np.where(np.isfinite(values), (bits + np.uint32(0xFFF) + odd) & np.uint32(0xFFFFE000), bits)


def _float(name: str, dtype: type) -> Format:
    limits = ml_dtypes.finfo(dtype)
    numbers = (float(limits.max), float(limits.smallest_normal), float(limits.smallest_subnormal))
    return Format(name, limits.bits - 1 - limits.nmant, limits.nmant, *numbers)


_DTYPES: dict[str, type] = {
    "FP32": np.float32,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP8 E4M3": ml_dtypes.float8_e4m3fn,
    "FP8 E5M2": ml_dtypes.float8_e5m2,
}
_FLOATS = {name: _float(name, dtype) for name, dtype in _DTYPES.items()}
_TF32 = Format("TF32", 8, 10, (2 - 2.0**-10) * 2.0**127, 2.0**-126, 2.0**-136)

FORMATS: dict[str, Format] = {
    "FP32": _FLOATS["FP32"],
    "TF32": _TF32,
    **{name: _FLOATS[name] for name in ("FP16", "BF16", "FP8 E4M3", "FP8 E5M2")},
    "INT8": int8(1.0),
}
"""By name, INT8 in steps of 1; other steps: `int8`. Limits are those of `ml_dtypes.finfo`."""


def format_named(name: str) -> Format:
    """The format called ``name``, INT8 in steps of 1.

    Raises:
        ValueError: an unknown name.
    """
    if name not in FORMATS:
        raise ValueError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
