"""The effect of a number format on one number, or on all numbers of a tensor."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from course_lib.benchmark import sqnr_db
from course_lib.precision.formats import FORMATS, int8
from course_lib.teaching.widgets.view import View

_SCALED = ("INT8", "FP8 E4M3", "FP8 E5M2")  # formats that are used with a scale, so that a threshold means something
_PLAIN = ("FP16", "BF16")  # for comparison: casts without a scale
_SAMPLE = 50_000  # values whose error is computed, at a hundred thresholds for each format
_BARS = 128


class PrecisionExplorer(View):
    """Without a tensor, it shows one value's bits, its nearest number, its error and the range, in seven formats.

    With a tensor, it shows the histogram, the values that a threshold clips, and the signal-to-quantization-noise ratio over the
    threshold. These are in the eight-bit formats, which need a scale.

    Args:
        values: finite floats of any shape, or None.
        name: name of the tensor.

    Raises:
        ValueError: values that are not finite floats, none, or all zero.
    """

    def __init__(self, values: ArrayLike | None = None, name: str = "") -> None:
        if values is None:
            super().__init__(
                "number", {"formats": _formats()}, {"size": 0.1, "negative": False, "format": "FP16", "scale": 0.01}
            )
        else:
            super().__init__("tensor", _tensor(values, name or "the tensor"), {"percent": 100, "format": "INT8"})


def _formats() -> list[dict[str, object]]:
    return [
        {
            "name": one.name,
            "exponent": one.exponent_bits,
            "mantissa": one.mantissa_bits,
            "largest": one.largest,
            "normal": one.smallest_normal,
            "smallest": one.smallest,
            "infinity": one.name != "FP8 E4M3",
        }
        for one in FORMATS.values()
    ]


def _tensor(values: ArrayLike, name: str) -> dict[str, object]:
    array = np.asarray(values)
    if array.dtype.kind != "f" or not array.size:
        raise ValueError(
            f"{name} must hold floats, found {array.size} of {array.dtype}: pass at least one value of a float type"
        )
    flat = array.astype(np.float64).ravel()
    if not np.isfinite(flat).all():
        raise ValueError(f"{name} holds NaN or infinity: there is no range to choose")
    sizes = np.abs(flat)
    if not (largest := float(sizes.max())):
        raise ValueError(f"{name} holds nothing but zeros: there is no range to choose")
    sample = flat if flat.size <= _SAMPLE else np.random.default_rng(0).choice(flat, _SAMPLE, replace=False)
    thresholds = largest * np.arange(1, 101) / 100
    plain = {known: sqnr_db(flat, FORMATS[known].round(flat)) for known in _PLAIN}
    return {
        "name": name,
        "count": flat.size,
        "sampled": sample.size,
        "largest": largest,
        "histogram": np.histogram(sizes, bins=_BARS, range=(0, largest))[0].tolist(),
        "clipped": [float(np.mean(sizes > threshold)) for threshold in thresholds],
        "curves": {known: [scaled_sqnr_db(sample, known, one) for one in thresholds] for known in _SCALED},
        "plain": {known: decibels if np.isfinite(decibels) else None for known, decibels in plain.items()},
    }


def scaled_sqnr_db(values: np.ndarray, name: str, threshold: float) -> float:
    """Signal over error in dB when `values` are stored in a scaled format whose largest number represents `threshold`."""
    if name == "INT8":
        return float(sqnr_db(values, int8(threshold / 127).round(values)))
    scale = threshold / FORMATS[name].largest
    inside = np.clip(values, -threshold, threshold)  # as quantization does; a plain cast would give NaN or infinity
    return float(sqnr_db(values, FORMATS[name].round(inside / scale) * scale))
