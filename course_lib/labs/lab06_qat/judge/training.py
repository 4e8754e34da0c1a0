"""A fresh variant of the network and its data, on which the judge runs a learner's `train`, and what came back.

The variant computes the same function of the same digits: images are transposed, and channels and classes have other numbers. So
calibration loses as much as before, and stored weights do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.errors import CourseError
from course_lib.labs.lab06_qat import calibrated, network, stored
from course_lib.labs.lab06_qat.judge.functions import Arrays
from course_lib.labs.lab06_qat.sandboxed import torch_forward
from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS
from course_lib.labs.lab06_qat.stored import Stored, along_outputs
from course_lib.models import Digits

BUDGET = 12_000  # images through the forward pass, calibration included
_CLOSE = 1e-4  # of the largest number of a folded layer
# Layers whose output channels are numbered together, and those that read them. A depthwise layer writes the channels that it reads.
_WRITTEN = (("stem",), ("expand1", "depth1"), ("project1", "project2"), ("expand2", "depth2"), ("mix",))
_READ = (("expand1",), ("project1",), ("expand2", "mix"), ("project2",), ("head",))
Layers = dict[str, dict[str, np.ndarray]]


@dataclass(frozen=True)
class Variant:
    """Other numbers for channels and classes.

    Attributes:
        orders: for each group of `_WRITTEN`, the order of its channels.
        classes: the order of the classes.
    """

    orders: tuple[np.ndarray, ...]
    classes: np.ndarray

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Variant:
        """A fresh one."""
        orders = tuple(rng.permutation(LAYERS[group[0]].outputs) for group in _WRITTEN)
        return cls(orders, rng.permutation(LAYERS["head"].outputs))

    def layers(self) -> Layers:
        """The given network in these numbers."""
        made: Layers = {name: {part: array.numpy() for part, array in one.items()} for name, one in network.layers().items()}
        for group, readers, order in zip(_WRITTEN, _READ, self.orders, strict=True):
            for name in group:
                made[name] = {part: array[order] for part, array in made[name].items()}
            for name in readers:
                made[name]["weight"] = made[name]["weight"][:, order]
        made["head"] = {part: array[self.classes] for part, array in made["head"].items()}
        for one in made.values():
            if one["weight"].ndim == 4:
                one["weight"] = one["weight"].swapaxes(2, 3)
        return {name: {part: np.ascontiguousarray(array) for part, array in one.items()} for name, one in made.items()}

    def data(self, given: Digits) -> Digits:
        """Images and labels in these numbers."""
        return Digits(np.ascontiguousarray(given.images.swapaxes(2, 3)), np.argsort(self.classes)[given.labels])


def questions(variant: Variant, rng: np.random.Generator) -> dict[str, Any]:
    """The calls of `fold` and `train`."""
    data = variant.data(network.training_images(int(rng.integers(1 << 31))))
    text = Path(torch_forward.__file__).read_text(encoding="utf-8")
    asked = {"layers": variant.layers(), "images": data.images, "labels": data.labels, "forward": text, "budget": BUDGET}
    return {"fold": list(_layers_to_fold(rng)), "train": [asked]}


def _layers_to_fold(rng: np.random.Generator) -> Sequence[dict[str, np.ndarray]]:
    channels = int(rng.integers(5, 9))
    drawn = {
        "weight": rng.normal(0, 1, (channels, 3, 3, 3)),
        "gamma": rng.normal(0, 2, channels),
        "beta": rng.normal(0, 1, channels),
        "mean": rng.normal(0, 3, channels),
        "variance": rng.uniform(1e-6, 3, channels) ** 2,  # so small that the 1e-5 of the norm counts
    }
    return [
        {part: array.astype(np.float32) for part, array in drawn.items()},
        {"weight": rng.normal(0, 1, (4, 6)).astype(np.float32), "bias": rng.normal(0, 1, 4).astype(np.float32)},
    ]


def _factor(layer: Mapping[str, np.ndarray], root: bool = True, eps: float = network.NORM_EPS) -> np.ndarray:
    variance = layer["variance"] + eps
    return np.asarray(layer["gamma"] / (np.sqrt(variance) if root else variance))


def _weight(layer: Mapping[str, np.ndarray], factor: np.ndarray) -> np.ndarray:
    return np.asarray(layer["weight"] * factor.reshape(along_outputs(layer["weight"])))


def _bias(layer: Mapping[str, np.ndarray], factor: np.ndarray) -> np.ndarray:
    return np.asarray(layer["beta"] - layer["mean"] * factor)


def _with(factor: Callable[[Mapping[str, np.ndarray]], np.ndarray]) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    return lambda one: (_weight(one, factor(one)), _bias(one, factor(one)))


# A mistake in words, and the weight and the bias that it gives.
_FOLDS: Sequence[tuple[str, Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]]] = (
    ("The root of the variance is missing.", _with(lambda one: _factor(one, root=False))),
    ("The norm adds 1e-5 to the variance before it takes the root.", _with(lambda one: _factor(one, eps=0))),
    ("The mean is missing from the bias.", lambda one: (_weight(one, _factor(one)), one["beta"])),
    ("The mean is subtracted without its factor.", lambda one: (_weight(one, _factor(one)), one["beta"] - one["mean"])),
    ("The mean has the wrong sign.", lambda one: (_weight(one, _factor(one)), _bias(one, -_factor(one)))),
    ("The weight is not multiplied by the factor of its channel.", lambda one: (one["weight"], _bias(one, _factor(one)))),
)


def wrong_fold(asked: Sequence[Mapping[str, np.ndarray]], found: Sequence[Arrays | str]) -> str:
    """What is wrong with the folded layers, in words; "" if nothing is."""
    for layer, answer in zip(asked, found, strict=True):
        kind = "a convolution with its norm" if "gamma" in layer else "the head, which has no norm"
        if isinstance(answer, str):
            return f"fold of {kind} failed: {answer}."
        with np.errstate(divide="ignore"):
            right, words = calibrated.fold(layer), ""
            if not _same(answer, right):
                words = next((words for words, made in _FOLDS if "gamma" in layer and _same(answer, made(layer))), "")
                return f"fold of {kind} returned another weight or bias. {words}".strip()
    return ""


def _same(answer: Arrays, right: tuple[np.ndarray, np.ndarray]) -> bool:
    pairs = zip((answer.get("weight"), answer.get("bias")), right, strict=True)
    with np.errstate(invalid="ignore"):
        return all(
            isinstance(found, np.ndarray) and found.shape == one.shape and bool((np.abs(found - one) <= _CLOSE * np.abs(one).max()).all())
            for found, one in pairs
        )  # fmt: skip


def seen(answer: Arrays) -> int:
    """How many images passed the forward pass, as `train`'s process counted them.

    Raises:
        CourseError: none did, or the answer has something else in its place.
    """
    count = answer.get("seen", 0)
    if type(count) is not int or not 0 <= count <= BUDGET:
        raise CourseError(f"the process of train sent no number of images from 1 to {BUDGET:,}")
    if not count:
        raise CourseError("train did not call the forward pass that it was given, which counts the images of the budget")
    return count


def trained(answer: Arrays) -> dict[str, Stored]:
    """The layers that `train` returned.

    Raises:
        CourseError: they are not layers of the network.
    """
    returned = answer.get("layers")
    if not isinstance(returned, dict):
        raise CourseError("train returned no dictionary of layers")
    found = {}
    for name, shape in LAYERS.items():
        one = returned.get(name)
        parts = one if isinstance(one, dict) else {}
        for part in ("codes", "scale", "bias", "input_scale"):
            if not isinstance(parts.get(part), np.ndarray):
                raise CourseError(f"train returned no {part!r} for {name}")
        codes, scale = parts["codes"], parts["scale"]
        if not (codes == np.rint(codes)).all() or codes.min(initial=0) < -128 or codes.max(initial=0) > 127:
            raise CourseError(f"the codes of {name} are not whole numbers from -128 to 127")
        if scale.size == 1 and shape.outputs > 1:
            raise CourseError(f"the weight of {name} has one scale: expected {shape.outputs}, one for each output channel")
        if parts["input_scale"].size != 1:
            raise CourseError(f"the input of {name} has {parts['input_scale'].size} scales: expected one for the whole tensor")
        floats = [np.asarray(array, np.float32) for array in (scale, parts["bias"], parts["input_scale"])]
        found[name] = Stored(codes.astype(np.int8), floats[0], floats[1], float(floats[2].reshape(())))
    stored.check(found)
    return found
