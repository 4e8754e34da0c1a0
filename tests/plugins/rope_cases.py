"""What the tests of the RoPE kernel share, with a GPU and without: cases, and how far off a right answer may be."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from course_lib.plugins import rope, rope_tables

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """One rotation. The tables have `spare` rows more than there are tokens."""

    x: np.ndarray
    cos: np.ndarray
    sin: np.ndarray
    interleaved: bool


def make_case(shape: tuple[int, ...], dtype: str, *, interleaved: bool, seed: int, spare: int = 0) -> Case:
    x = np.random.default_rng(seed).standard_normal(shape).astype(DTYPES[dtype])
    return Case(x, *rope_tables(shape[1] + spare, shape[3], first=seed % 1000), interleaved)


def random_shapes(count: int, seed: int, *, largest: int) -> list[tuple[int, int, int, int]]:
    """Shapes of at most `largest` numbers: small and odd ones, single tokens, every even head size up to 256, some of them often."""
    rng = np.random.default_rng(seed)
    shapes: list[tuple[int, int, int, int]] = []
    while len(shapes) < count:
        common = (64, 66, 80, 96, 128, 130, 256)
        head_size = int(rng.choice(common)) if rng.random() < 0.6 else 2 * int(rng.integers(1, 129))
        batch, heads = int(rng.integers(1, 6)), int(rng.choice([1, 2, 3, 5, 7, 8, 12, 17, 32, 33, 40]))
        sequence = int(rng.choice([1, 2, 3, 17, 64, 65, 130]))
        if batch * sequence * heads * head_size <= largest:
            shapes.append((batch, sequence, heads, head_size))
    return shapes


def excess(y: np.ndarray, case: Case) -> float:
    """The largest error as a share of what is allowed: at most 1 for a kernel that computes in float32 and rounds once.

    With u = 2**-24 a float32 result may be off by 2u (|a cos| + |b sin|): two products, one sum. A narrower type then rounds to
    nearest: half of its spacing, which is eps / 2 relative, or half of the smallest subnormal number.
    """
    assert y.shape == case.x.shape and y.dtype == case.x.dtype
    exact = rope(case.x, case.cos, case.sin, interleaved=case.interleaved)
    sizes = rope(np.abs(case.x), np.abs(case.cos), -np.abs(case.sin), interleaved=case.interleaved)
    swapped = rope(np.abs(case.x), np.abs(case.cos), np.abs(case.sin), interleaved=case.interleaved)
    products = np.maximum(sizes, swapped)  # |a cos| + |b sin| for either half
    allowed = 2.0**-23 * products
    if y.dtype != np.float32:
        kind: Any = ml_dtypes.finfo(y.dtype)
        allowed = allowed + float(kind.eps) / 2 * (np.abs(exact) + allowed) + float(kind.smallest_subnormal) / 2
    return float((np.abs(y.astype(np.float64) - exact) / (allowed * (1 + 1e-6) + 2.0**-149)).max(initial=0.0))
