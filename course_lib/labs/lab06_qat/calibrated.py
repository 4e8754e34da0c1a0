"""Calibration alone: the given network with min-max ranges, and the accuracy of a quantized network without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab06_qat import network
from course_lib.labs.lab06_qat.stored import Stored, along_outputs
from course_lib.models import Digits

if TYPE_CHECKING:
    import torch

_LARGEST_CODE = 127


@cache
def calibration() -> Mapping[str, Stored]:
    """The given network after min-max calibration: what learners start from."""
    import torch

    folded = folded_layers()
    images = torch.from_numpy(network.training_images().images[: network.CALIBRATION])
    largest: dict[str, float] = {}

    def observe(name: str, x: torch.Tensor) -> torch.Tensor:
        largest[name] = float(x.abs().max())
        return x

    with torch.inference_mode():
        network.forward({name: tuple(map(torch.from_numpy, pair)) for name, pair in folded.items()}, images, observe)  # type: ignore[misc]
    found = {}
    for name, (weight, bias) in folded.items():
        codes, scale = codes_and_scale(weight)
        found[name] = Stored(codes, scale, bias, largest[name] / _LARGEST_CODE)
    return found


def codes_and_scale(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight in INT8, with one scale for each output channel from its largest magnitude."""
    scale = np.abs(weight).reshape(len(weight), -1).max(1) / np.float32(_LARGEST_CODE)
    return np.rint(weight / scale.reshape(along_outputs(weight))).astype(np.int8), scale


@cache
def folded_layers() -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """Weight and bias of each layer, with its norm folded in, float32."""
    return {name: fold({part: array.numpy() for part, array in layer.items()}) for name, layer in network.layers().items()}


def fold(layer: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The oracle of the learner's `fold`."""
    weight = layer["weight"]
    if "gamma" not in layer:
        return weight, layer["bias"]
    factor = layer["gamma"] / np.sqrt(layer["variance"] + np.float32(network.NORM_EPS))
    return weight * factor.reshape(along_outputs(weight)), layer["beta"] - layer["mean"] * factor


def accuracy(layers: Mapping[str, Stored], images: Digits, *, round_inputs: bool = True) -> float:
    """The accuracy of a quantized network, computed here and not by an engine."""
    import torch

    weights = {name: (torch.from_numpy(one.values()), torch.from_numpy(one.bias.copy())) for name, one in layers.items()}

    def rounded(name: str, x: torch.Tensor) -> torch.Tensor:
        scale = layers[name].input_scale
        return x if scale is None else torch.round(x / scale).clamp(-_LARGEST_CODE - 1, _LARGEST_CODE) * scale

    with torch.inference_mode():
        answers = network.forward(weights, torch.from_numpy(images.images), rounded if round_inputs else None).numpy()
    return share_right(answers, images)


def share_right(answers: np.ndarray, images: Digits) -> float:
    """The accuracy of logits ``(n, 10)``."""
    return float((answers.argmax(1) == images.labels).mean())
