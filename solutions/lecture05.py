"""Solutions of the exercises in lecture 5."""

from __future__ import annotations

import math

import numpy as np


def round_to(value: float, mantissa_bits: int) -> float:
    """5.1: the fraction has the leading 1 and the mantissa bits."""
    fraction, exponent = math.frexp(value)
    steps = 2 ** (mantissa_bits + 1)
    return math.ldexp(round(fraction * steps) / steps, exponent)


def rms(values: np.ndarray) -> float:
    """5.2: the size cancels, so it is taken out first and put back at the end."""
    largest = np.abs(values).max()
    if largest == 0:
        return 0.0
    small = values / largest
    return float(largest * np.sqrt((small * small).mean()))


def keep_in_fp32(nodes: list[tuple[str, tuple[str, ...], str]], largest: dict[str, float]) -> list[str]:
    """5.3: a node is safe if FP16 can hold everything that it reads and writes."""
    kept = []
    for name, inputs, output in nodes:
        sizes = [largest[tensor] for tensor in (*inputs, output)]
        if max(sizes) > 65504 or any(0 < size < 6e-8 for size in sizes):
            kept.append(name)
    return kept


def missed_nodes(
    nodes: list[tuple[str, tuple[str, ...], str]],
    calibrated: dict[str, float],
    production: dict[str, float],
    data_max: float = 512,
) -> list[str]:
    """5.4: AutoCast cast the nodes whose calibrated tensors are all small; of these, some overflow on other data."""
    missed = []
    for name, inputs, output in nodes:
        tensors = (*inputs, output)
        in_fp16 = max(calibrated[tensor] for tensor in tensors) <= data_max
        if in_fp16 and max(production[tensor] for tensor in tensors) > 65504:
            missed.append(name)
    return missed
