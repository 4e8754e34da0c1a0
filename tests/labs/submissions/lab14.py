"""Submissions for lab 14: right in another way, or with the mistakes that learners make."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from course_lib.labs.framework import submission
from course_lib.labs.lab14_four_bits import checks, given, reference
from course_lib.labs.lab14_four_bits.given import PRODUCTS, Fp8, Int4, fp8
from course_lib.labs.lab14_four_bits.reference import pack, unpack
from tests.labs.submissions import Mistake

Forms = dict[str, Int4 | Fp8]
LEARNER = "ada"
_EIGHT = ("blocks.0.qkv", "blocks.0.out", "blocks.0.up", "blocks.2.qkv")


@cache
def int4(name: str, block: int) -> Int4:
    """See `reference.int4`; kept, because many submissions have the same products."""
    return reference.int4(name, block, LEARNER)


def uniform(block: int = 64) -> Forms:
    """Every product in INT4."""
    return {name: int4(name, block) for name in PRODUCTS}


@cache
def eight() -> Forms:
    """Every product in FP8."""
    return {name: fp8(weight) for name, weight in given.weights(LEARNER).items()}


def by_hand() -> Forms:
    """Four products in FP8, one in small blocks, and the others in blocks of 64: within the budget, and small enough."""
    return uniform() | {name: eight()[name] for name in _EIGHT} | {"blocks.0.down": int4("blocks.0.down", 16)}


def first_block_in_eight() -> Forms:
    """Within the budget, and too large for full points."""
    return uniform() | {name: one for name, one in eight().items() if name in _EIGHT or name.startswith("blocks.0.")}


def rows_in_one_block() -> Forms:
    """Three products with one scale for each row, which this compiler expands in each call."""
    return by_hand() | {name: int4(name, 192) for name in ("blocks.3.out", "blocks.3.qkv", "blocks.3.up")}


def with_codes(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Forms:
    """`by_hand` with changed codes ``(in, out)`` and scales ``(in / block, out)`` of one product."""
    codes, scales = change(int4("blocks.1.up", 64).codes(), int4("blocks.1.up", 64).scales)
    return by_hand() | {"blocks.1.up": Int4(pack(codes.astype(np.int8)), np.ascontiguousarray(scales, np.float16))}


def another_network() -> Forms:
    """Codes and scales of the right form, of a network that was trained for something else."""
    rng = np.random.default_rng(0)
    codes = {name: rng.integers(-7, 8, shape).astype(np.int8) for name, shape in PRODUCTS.items()}
    return {name: Int4(pack(one), np.full((len(one) // 64, one.shape[1]), 0.01, np.float16)) for name, one in codes.items()}


def bytes_by_hand(codes: np.ndarray) -> np.ndarray:
    """Two codes in a byte, without a bit operation."""
    flat = [int(code) % 16 for code in codes.ravel()] + [0] * (codes.size % 2)
    return np.array([low + 16 * high for low, high in zip(flat[0::2], flat[1::2], strict=True)], np.uint8)


def save_packed(folder: Path, change: Callable[[np.ndarray], np.ndarray] = np.array, unsigned: bool = False) -> None:
    """The arrays of task 1 with changed bytes, or with codes from 0 to 15."""
    codes, packed = given.packing_arrays()
    unpacked = unpack(packed, (16, 20)) & (15 if unsigned else -1)
    np.savez(
        folder / checks.PACKED,
        even=change(bytes_by_hand(codes["even"])),
        odd=change(bytes_by_hand(codes["odd"])),
        codes=unpacked,
    )


def save_scales(folder: Path, search: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> None:
    """The scales of task 2, from weight and importance of each product."""
    arrays = {
        name: search(weight, given.importance(LEARNER)[name]).astype(np.float16)
        for name, weight in given.weights(LEARNER).items()
    }
    np.savez(folder / checks.SCALES, **arrays)  # type: ignore[arg-type]
    submission.write(folder / checks.LEARNER, LEARNER)


def coarse_search(weight: np.ndarray, importance: np.ndarray) -> np.ndarray:
    """Half as many fractions as the reference tries."""
    parts, matters = weight.reshape(len(weight), -1, 64), importance.reshape(1, -1, 64)
    tried = [np.abs(parts).max(-1) / 7 * fraction for fraction in np.linspace(0.32, 1.02, 36)]
    errors = [(matters * (np.clip(np.rint(parts / s[..., None]), -7, 7) * s[..., None] - parts) ** 2).sum(-1) for s in tried]
    return np.asarray(np.take_along_axis(np.stack(tried), np.argmin(errors, axis=0)[None], axis=0)[0])


def nearest(weight: np.ndarray, _: np.ndarray) -> np.ndarray:
    """The scales of round to nearest."""
    return np.asarray(np.abs(weight.reshape(len(weight), -1, 64)).max(-1) / 7)


def save_forms(forms: Callable[[], Forms], folder: Path) -> None:
    """The weights of task 3."""
    given.save(forms(), folder / given.FILE)
    submission.write(folder / checks.LEARNER, LEARNER)


def other_forms(folder: Path) -> None:
    """Another right answer: other functions, and forms that were chosen by hand."""
    save_packed(folder)
    save_scales(folder, coarse_search)
    save_forms(by_hand, folder)


def _transposed(codes: np.ndarray, scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return codes.T.reshape(codes.shape), scales


MISTAKES = {
    "halves exchanged": Mistake(
        lambda folder: save_packed(folder, lambda one: one << 4 | one >> 4), "packing", "none", "the two codes of each byte are exchanged"
    ),
    "codes without a sign": Mistake(
        partial(save_packed, unsigned=True), "packing", "partial", "8 to 15 do not stand for negative codes"
    ),
    "round to nearest": Mistake(
        lambda folder: save_scales(folder, nearest), "search", "none", "relative to round to nearest is 1, half of the points need"
    ),
    "importance ignored": Mistake(
        lambda folder: save_scales(folder, lambda weight, one: coarse_search(weight, np.ones_like(one))), "search", "partial",
        "that the course's scales leave is",
    ),
    "INT4 everywhere": Mistake(partial(save_forms, uniform), "size", "none", "lost bits per byte on secret text is 0.0"),
    "too many products in FP8": Mistake(partial(save_forms, first_block_in_eight), "size", "partial", "bits per weight is 5.37"),
    "codes in the order (out, in)": Mistake(
        partial(save_forms, lambda: with_codes(_transposed)), "size", "none", "the codes are in the order (out, in)"
    ),
    "one scale for each row": Mistake(
        partial(save_forms, rows_in_one_block), "plan", "partial", "(blocks.3.out, blocks.3.qkv, blocks.3.up)"
    ),
}  # fmt: skip
