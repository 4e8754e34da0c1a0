"""The reference of lab 14: its files, and the numbers about it that learners get. ``python -m`` this module writes the numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from course_lib.labs.framework import submission
from course_lib.labs.lab14_four_bits import checks, given
from course_lib.labs.lab14_four_bits.given import BUDGET, PRODUCTS, Fp8, Int4, fp8
from course_lib.labs.lab14_four_bits.loss import Meter

BLOCKS = (96, 64, 32, 16)  # a block of all 192 inputs of a product is expanded in each call
_TARGET = 0.9 * BUDGET  # the grader measures on another text
_MEASURED = 64  # the block with which each product's loss is measured
_SMALLEST = np.float16(2.0**-24)  # positive number of FP16


def pack(codes: np.ndarray) -> np.ndarray:
    """Codes from -8 to 7 of any shape, two in a byte, the first one in the low half: uint8 ``((n + 1) // 2,)``."""
    return _joined(_halves(codes))


def unpack(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The codes in bytes from `pack`, int8 of the given shape."""
    halves = np.stack([packed & 15, packed >> 4], axis=1).ravel()[: int(np.prod(shape))]
    return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8).reshape(shape)


def search(weight: np.ndarray, block: int, importance: np.ndarray) -> np.ndarray:
    """For each block the scale with the smallest weighted squared error, float32 ``(out, in / block)``, of a weight ``(out, in)``."""
    errors = [_errors(weight, block, importance, fraction) for fraction in _FRACTIONS]
    best = np.argmin(errors, axis=0)
    tried = [_scales(weight, block, fraction) for fraction in _FRACTIONS]
    return np.asarray(np.take_along_axis(np.stack(tried), best[None], axis=0)[0])


_FRACTIONS = np.linspace(0.3, 1.0, 71)


def _scales(weight: np.ndarray, block: int, fraction: float) -> np.ndarray:
    """A fraction of the scales of round to nearest, as the file stores them."""
    largest = np.abs(weight.reshape(len(weight), -1, block)).max(-1) / 7
    return np.maximum((fraction * largest).astype(np.float16), _SMALLEST).astype(np.float32)


def _errors(weight: np.ndarray, block: int, importance: np.ndarray, fraction: float) -> np.ndarray:
    parts, scales = weight.reshape(len(weight), -1, block), _scales(weight, block, fraction)[..., None]
    wrong = np.clip(np.rint(parts / scales), -7, 7) * scales - parts
    return np.asarray((importance.reshape(1, -1, block) * wrong**2).sum(-1))


def int4(name: str, block: int, learner: str = "") -> Int4:
    """A product's given weight in INT4, with searched scales."""
    weight = given.weights(learner)[name]
    scales = search(weight, block, given.importance(learner)[name]).astype(np.float16)
    parts = weight.reshape(*scales.shape, block)
    codes = np.clip(np.rint(parts / scales[..., None].astype(np.float32)), -7, 7).astype(np.int8)
    return Int4(pack(codes.reshape(weight.shape).T), np.ascontiguousarray(scales.T))


@cache
def chosen(learner: str = "") -> Mapping[str, Int4 | Fp8]:
    """A form for each product: as few bits as the budget allows."""
    return chosen_on(learner, Meter(1, 8, learner), Meter(0, 24, learner))


def chosen_on(learner: str, probe: Meter, meter: Meter) -> Mapping[str, Int4 | Fp8]:
    """The same for other texts: a short one on which products are compared, and one on which the sum is measured.

    The loss grows with the square of the output's error. So one measurement per product gives the loss of each other form, from the
    errors that the inputs weigh. The upgrade that saves most loss per bit is taken until the loss is within the target. The last one
    may have saved more than was needed, so smaller forms are then tried again.
    """
    whole = given.weights(learner)
    forms: dict[str, list[Int4 | Fp8]] = {
        name: [*(int4(name, block, learner) for block in BLOCKS), fp8(whole[name])] for name in PRODUCTS
    }
    losses = {}
    for name, options in forms.items():
        errors = [_error(one, whole[name], given.importance(learner)[name]) for one in options]
        at = BLOCKS.index(_MEASURED)
        measured = probe.lost({name: options[at].values().T}).mean
        losses[name] = [measured * error / errors[at] for error in errors]
    taken = dict.fromkeys(PRODUCTS, 0)

    def gain(name: str, new: int) -> tuple[float, int]:
        """Loss saved, and bits added, by another form of a product."""
        now = taken[name]
        return losses[name][now] - losses[name][new], forms[name][new].bits - forms[name][now].bits

    def lost() -> float:
        return meter.lost({name: forms[name][form].values().T for name, form in taken.items()}).mean

    while sum(losses[name][form] for name, form in taken.items()) > _TARGET or lost() > _TARGET:
        larger = [(name, new) for name, now in taken.items() for new in range(now + 1, len(forms[name]))]
        name, form = max(larger, key=lambda one: gain(*one)[0] / gain(*one)[1])
        taken[name] = form
    room = _TARGET - lost()
    smaller = [(name, new) for name, now in taken.items() for new in range(now)]
    for name, form in sorted(smaller, key=lambda one: gain(*one)[1]):
        saved, added = gain(name, form)
        if added < 0 and room + saved >= 0:
            room, taken[name] = room + saved, form
    return {name: forms[name][form] for name, form in taken.items()}


def _error(one: Int4 | Fp8, weight: np.ndarray, importance: np.ndarray) -> float:
    """The squared error of a stored weight, each column weighted with the mean square of its input."""
    return float(((one.values().T - weight) ** 2 * importance).sum())


def write(folder: Path, learner: str = "reference") -> None:
    """Write the reference submission for a learner's decoder."""
    submission.write(folder / checks.LEARNER, learner)
    codes, packed = given.packing_arrays()
    arrays = {name: pack(array) for name, array in codes.items()} | {"codes": unpack(packed, (16, 20))}
    np.savez(folder / checks.PACKED, **arrays)  # type: ignore[arg-type]
    np.savez(folder / checks.SCALES, **{name: _searched(name, learner).astype(np.float16) for name in PRODUCTS})  # type: ignore[arg-type]
    given.save(chosen(learner), folder / given.FILE)


def _searched(name: str, learner: str = "") -> np.ndarray:
    return search(given.weights(learner)[name], checks.BLOCK, given.importance(learner)[name])


# ---- the numbers that learners get

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
    fractions = [_scales(weight, block, fraction) for fraction in _FRACTIONS]
    return {
        "course": _searched(name),
        "even": search(weight, block, np.ones_like(importance)),
        "nearest": _scales(weight, block, 1.0),
        "one": min(fractions, key=lambda scales: checks.weighted_error(name, scales)),
        "eight": _scales(weight, block, 7 / 8),
    }


def _rounded(error: float) -> float:
    return float(f"{error:.5g}")


if __name__ == "__main__":
    Path(__file__).with_name("expected.json").write_text(json.dumps(numbers(), indent=1) + "\n")
