"""The reference of lab 14. ``python docs/make_four_bits.py`` writes the numbers about it that learners get."""

from __future__ import annotations

from collections.abc import Mapping
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
    halves = codes.astype(np.uint8).ravel() & 15
    halves = np.append(halves, np.uint8(0)) if halves.size % 2 else halves
    return np.asarray(halves[0::2] | halves[1::2] << 4)


def unpack(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The codes in bytes from `pack`, int8 of the given shape."""
    halves = np.stack([packed & 15, packed >> 4], axis=1).ravel()[: int(np.prod(shape))]
    return ((halves ^ 8).astype(np.int8) - 8).astype(np.int8).reshape(shape)


def search(weight: np.ndarray, block: int, importance: np.ndarray) -> np.ndarray:
    """For each block the scale with the smallest weighted squared error, float32 ``(out, in / block)``, of a weight ``(out, in)``."""
    errors = [_errors(weight, block, importance, fraction) for fraction in FRACTIONS]
    best = np.argmin(errors, axis=0)
    tried = [scales_of(weight, block, fraction) for fraction in FRACTIONS]
    return np.asarray(np.take_along_axis(np.stack(tried), best[None], axis=0)[0])


FRACTIONS = np.linspace(0.3, 1.0, 71)


def scales_of(weight: np.ndarray, block: int, fraction: float) -> np.ndarray:
    """A fraction of the scales of round to nearest, as the file stores them."""
    largest = np.abs(weight.reshape(len(weight), -1, block)).max(-1) / 7
    return np.maximum((fraction * largest).astype(np.float16), _SMALLEST).astype(np.float32)


def _errors(weight: np.ndarray, block: int, importance: np.ndarray, fraction: float) -> np.ndarray:
    parts, scales = weight.reshape(len(weight), -1, block), scales_of(weight, block, fraction)[..., None]
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
    np.savez(folder / checks.SCALES, **{name: searched(name, learner).astype(np.float16) for name in PRODUCTS})  # type: ignore[arg-type]
    given.save(chosen(learner), folder / given.FILE)


def searched(name: str, learner: str = "") -> np.ndarray:
    """The scales of a product for task 2."""
    return search(given.weights(learner)[name], checks.BLOCK, given.importance(learner)[name])
