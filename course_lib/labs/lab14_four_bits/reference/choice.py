"""A form for each product, as few bits as the budget allows, from one measurement per product."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from course_lib.labs.lab14_four_bits import graph_file, network
from course_lib.labs.lab14_four_bits.loss import BUDGET, Meter
from course_lib.labs.lab14_four_bits.network import PRODUCTS
from course_lib.labs.lab14_four_bits.reference.packing import pack
from course_lib.labs.lab14_four_bits.reference.scales import search
from course_lib.labs.lab14_four_bits.stored import Int4, Stored, fp8

FILES = ("packing.py", "scales.py")  # in this folder, as a submission has them
BLOCKS = (96, 64, 32, 16)  # a block of all 192 inputs of a product is expanded in each call
_TARGET = 0.9 * BUDGET  # the grader measures on another text
_MEASURED = 64  # the block with which each product's loss is measured


def int4(name: str, block: int) -> Int4:
    """A product's given weight in INT4, with searched scales."""
    weight = network.weights()[name]
    scales = search(weight, block, network.importance()[name]).astype(np.float16)
    parts = weight.reshape(*scales.shape, block)
    codes = np.clip(np.rint(parts / scales[..., None].astype(np.float32)), -7, 7).astype(np.int8)
    return Int4(pack(codes.reshape(weight.shape).T), np.ascontiguousarray(scales.T))


@cache
def chosen() -> Mapping[str, Stored]:
    """A form for each product: as few bits as the budget allows."""
    return chosen_on(Meter(seed=1, windows=8), Meter(windows=24))


def chosen_on(probe: Meter, meter: Meter) -> Mapping[str, Stored]:
    """The same for other texts: a short one on which products are compared, and one on which the sum is measured.

    The loss grows with the square of the output's error. So one measurement per product gives the loss of each other form, from the
    errors that the inputs weigh. The upgrade that saves most loss per bit is taken until the loss is within the target. The last one
    may have saved more than was needed, so smaller forms are then tried again.
    """
    forms: dict[str, list[Stored]] = {
        name: [*(int4(name, block) for block in BLOCKS), fp8(network.weights()[name])] for name in PRODUCTS
    }
    losses = {}
    for name, options in forms.items():
        errors = [_error(name, one) for one in options]
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


def _error(name: str, one: Stored) -> float:
    """The squared error of a stored weight, each column weighted with the mean square of its input."""
    wrong = one.values().T - network.weights()[name]
    return float((wrong**2 * network.importance()[name]).sum())


def write_files(folder: Path) -> None:
    """Write the reference submission."""
    graph_file.write(chosen(), folder / graph_file.MODEL)
    for name in FILES:
        (folder / name).write_bytes(Path(__file__).with_name(name).read_bytes())
