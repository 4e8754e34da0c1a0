"""Rotary position embedding in NumPy: the reference for every kernel and plugin of this package.

Source: Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding (2021), arXiv:2104.09864.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def rope_tables(
    sequence: int, head_size: int, *, base: float = 10000.0, first: int = 0, dtype: Any = np.float32
) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines of the angles ``position * base**(-2 * i / head_size)``, computed in float64.

    Args:
        sequence: number of positions.
        head_size: numbers in a head, even; a head has ``head_size / 2`` pairs.
        base: the longest wavelength is near ``2 * pi * base`` positions.
        first: position of the first row: 0 for a prompt, the number of tokens so far for the next one.
        dtype: type of the tables; the kernels take float32.

    Returns:
        cos and sin, each of shape ``(sequence, head_size / 2)``.

    Raises:
        ValueError: an odd head size or a negative size.
    """
    if head_size % 2 or head_size < 0 or sequence < 0:
        raise ValueError(f"need an even head size and no negative size, got sequence {sequence} and head size {head_size}")
    frequencies = base ** (-np.arange(0, head_size, 2, dtype=np.float64) / max(head_size, 1))
    angles = np.arange(first, first + sequence, dtype=np.float64)[:, None] * frequencies
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rope(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, interleaved: bool = False, dtype: Any = np.float64) -> np.ndarray:
    """Rotate each pair (a, b) of numbers of a head by its angle: ``a cos - b sin`` and ``b cos + a sin``.

    Args:
        x: shape ``(batch, sequence, heads, head_size)``, any floating-point dtype.
        cos, sin: tables of `rope_tables`, shape ``(rows, head_size / 2)`` with at least `sequence` rows; row s belongs to token s.
        interleaved: which numbers form pair i: ``(i, i + head_size / 2)``, or ``(2 * i, 2 * i + 1)`` if interleaved.
        dtype: type of the arithmetic and of the result.

    Raises:
        ValueError: shapes that do not fit.
    """
    check_shapes(x.shape, cos.shape, sin.shape)
    half = x.shape[3] // 2
    pairs = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(half), slice(half, None))
    a, b = (x[..., part].astype(dtype) for part in pairs)
    c, s = (table[: x.shape[1], None, :].astype(dtype) for table in (cos, sin))  # the same for all heads
    y = np.empty(x.shape, dtype)
    y[..., pairs[0]] = a * c - b * s
    y[..., pairs[1]] = b * c + a * s
    return y


def check_shapes(x: tuple[int, ...], cos: tuple[int, ...], sin: tuple[int, ...]) -> None:
    """Raise ValueError unless these are the shapes of a tensor to rotate and of tables with enough rows."""
    if len(x) != 4 or x[3] % 2:
        raise ValueError(f"x needs the shape (batch, sequence, heads, head size) with an even head size, got {tuple(x)}")
    if cos != sin or len(cos) != 2 or cos[1] != x[3] // 2 or cos[0] < x[1]:
        raise ValueError(
            f"x of shape {tuple(x)} needs cos and sin with {x[3] // 2} columns and at least {x[1]} rows, "
            f"got {tuple(cos)} and {tuple(sin)}"
        )
