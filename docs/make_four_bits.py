"""Write the numbers of lab 14 that learners get, course_lib/labs/lab14_four_bits/expected.json.

    python docs/make_four_bits.py

Digests of right and of usual wrong arrays, and the errors of right and of usual wrong scales.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from course_lib.labs.lab14_four_bits import checks, given
from course_lib.labs.lab14_four_bits.given import PRODUCTS
from course_lib.labs.lab14_four_bits.reference import FRACTIONS, pack, scales_of, search, searched, unpack

Usual = Mapping[str, Callable[[np.ndarray], np.ndarray]]  # what a usual mistake makes of the argument, by its words


def _halves(codes: np.ndarray) -> np.ndarray:
    return codes.astype(np.uint8).ravel() & 15


def _joined(halves: np.ndarray) -> np.ndarray:
    halves = np.append(halves, np.uint8(0)) if halves.size % 2 else halves
    return np.asarray(halves[0::2] | halves[1::2] << 4)


def _exchanged(packed: np.ndarray) -> np.ndarray:
    return np.asarray(packed << 4 | packed >> 4)


PACKED_WRONG: Usual = {
    "the two codes of each byte are exchanged": lambda codes: _exchanged(pack(codes)),
    "the codes are stored plus 8, without a sign": lambda codes: _joined((codes.ravel() + 8).astype(np.uint8)),
    "the sign is a bit of its own": lambda codes: _joined(((codes < 0) * 8 + np.abs(codes) % 8).astype(np.uint8).ravel()),
    "each code has a byte of its own": _halves,
    "a negative first code sets all high bits of its byte": lambda codes: _unmasked(codes),
    "the last of an odd number of codes is missing": lambda codes: pack(codes.ravel()[: codes.size // 2 * 2]),
    "the codes are taken column by column": lambda codes: pack(codes.T),
    "the two halves of the array share the bytes": lambda codes: _apart(codes),
}
UNPACKED_WRONG: Usual = {
    "the two codes of each byte are exchanged": lambda packed: unpack(_exchanged(packed), (16, 20)),
    "8 to 15 do not stand for negative codes": lambda packed: unpack(packed, (16, 20)) & 15,
    "8 is subtracted from each code": lambda packed: ((unpack(packed, (16, 20)) & 15) - 8).astype(np.int8),
    "the codes are laid out column by column": lambda packed: unpack(packed, (20, 16)).T,
    "all low halves come before the high ones": lambda packed: _low_first(packed),
}


def _unmasked(codes: np.ndarray) -> np.ndarray:
    flat = np.append(codes.ravel(), np.int8(0))[: (codes.size + 1) // 2 * 2].view(np.uint8)
    return np.asarray(flat[0::2] | flat[1::2] << 4)


def _apart(codes: np.ndarray) -> np.ndarray:
    halves = np.append(_halves(codes), np.uint8(0))[: (codes.size + 1) // 2 * 2]
    return np.asarray(halves[: halves.size // 2] | halves[halves.size // 2 :] << 4)


def _low_first(packed: np.ndarray) -> np.ndarray:
    codes = unpack(packed, (packed.size, 2))
    return np.asarray(codes.T.reshape(16, 20))


def numbers() -> dict[str, object]:
    """Digests of right and of usual wrong arrays, and the errors of right and of usual wrong scales."""
    codes, packed = given.packing_arrays()
    packing = {name: _digests(array, pack, PACKED_WRONG) for name, array in codes.items()}
    packing["codes"] = _digests(packed, lambda one: unpack(one, (16, 20)), UNPACKED_WRONG)
    errors = {name: {way: _rounded(checks.weighted_error(name, one)) for way, one in _ways(name).items()} for name in PRODUCTS}
    return {"packing": packing, "search": errors}


def _digests(argument: np.ndarray, right: Callable[[np.ndarray], np.ndarray], wrong: Usual) -> dict[str, object]:
    mistakes = {checks.digest(mistake(argument)): words for words, mistake in wrong.items()}
    mistakes.pop(checks.digest(right(argument)), None)  # an even array has no last code
    return {"right": checks.digest(right(argument)), "mistakes": mistakes}


def _ways(name: str) -> dict[str, np.ndarray]:
    """Scales of a product, by the way in which they are found."""
    weight, importance, block = given.weights()[name], given.importance()[name], checks.BLOCK
    fractions = [scales_of(weight, block, fraction) for fraction in FRACTIONS]
    return {
        "course": searched(name),
        "even": search(weight, block, np.ones_like(importance)),
        "nearest": scales_of(weight, block, 1.0),
        "one": min(fractions, key=lambda scales: checks.weighted_error(name, scales)),
        "eight": scales_of(weight, block, 7 / 8),
    }


def _rounded(error: float) -> float:
    return float(f"{error:.5g}")


if __name__ == "__main__":
    Path(checks.__file__).with_name("expected.json").write_text(json.dumps(numbers(), indent=1) + "\n")
