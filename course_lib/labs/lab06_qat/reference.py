"""The reference of lab 06: two layers in float, percentiles, and quantization-aware training with learned scales."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from course_lib.labs.framework import submission
from course_lib.labs.lab06_qat import checks, given
from course_lib.labs.lab06_qat.given import HIGH, LOW
from course_lib.models.torch_threads import one_thread

FLOAT_LAYERS = ("depth1", "depth2")
PERCENTILE = 99.5
STEPS, BATCH, RATE = 160, 64, 2e-3
START = 0.6  # of the largest value: clips a little, and gives small channels more steps


def fake_quantize(x: Tensor, scale: Tensor, axis: int | None = None) -> Tensor:
    """Round to the codes of INT8 and back; gradients pass straight through the rounding, to `x` and to `scale`."""
    if axis is not None:
        scale = scale.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    clipped = torch.clamp(x / scale, -128, 127)
    codes = clipped + (torch.round(clipped) - clipped).detach()
    return codes * scale


def percentile_scales(learner: str, percentile: float = PERCENTILE) -> dict[str, float]:
    """For each layer the scale that clips all but this percentage of what it reads."""
    read: dict[str, Tensor] = {}
    images = torch.from_numpy(given.training_images().images[: given.CALIBRATION])

    def observe(name: str, x: Tensor) -> Tensor:
        read[name] = x.abs().flatten()
        return x

    with torch.inference_mode():
        given.forward({name: fold(layer) for name, layer in given.layers(learner).items()}, images, read=observe)
    return {name: float(np.percentile(values.numpy(), percentile)) / HIGH for name, values in read.items()}


def fold(layer: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer, with its batch norm folded in."""
    if "gamma" not in layer:
        return layer["weight"].clone(), layer["bias"].clone()
    factor = layer["gamma"] / torch.sqrt(layer["variance"] + given.NORM_EPS)
    return layer["weight"] * factor.reshape(-1, 1, 1, 1), layer["beta"] - layer["mean"] * factor


def weight_scale(weight: Tensor) -> Tensor:
    """The scale of each output channel."""
    return weight.detach().abs().flatten(1).amax(1).clamp_min(1e-12) / HIGH


@lru_cache(maxsize=4)
def trained(learner: str, learned_scales: bool = True) -> dict[str, dict[str, np.ndarray]]:
    """Codes, their scales, bias and input scale by layer, trained once in each process: 10 s on one core."""
    data = given.training_images(learner)
    with one_thread(), torch.inference_mode(False), torch.enable_grad():
        return _trained(learner, torch.from_numpy(data.images), torch.from_numpy(data.labels), learned_scales)


def _trained(learner: str, images: Tensor, labels: Tensor, learned_scales: bool) -> dict[str, dict[str, np.ndarray]]:
    folded = {name: fold(layer) for name, layer in given.layers(learner).items()}
    minmax = {name: torch.tensor(one.input_scale) for name, one in given.calibration(learner).items()}
    # A step of the optimizer changes a logarithm by the same amount, whatever the size of the scale.
    logs = {name: (START * scale).log().requires_grad_(learned_scales) for name, scale in minmax.items()}
    parameters = [part.requires_grad_() for pair in folded.values() for part in pair]

    def read(name: str, x: Tensor) -> Tensor:
        return fake_quantize(x, logs[name].exp())

    def weigh(_: str, weight: Tensor) -> Tensor:
        return fake_quantize(weight, weight_scale(weight), axis=0)

    optimizer = torch.optim.Adam([{"params": parameters, "lr": RATE}, {"params": [*logs.values()], "lr": 2 * RATE}])
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        first = step * BATCH % (len(images) - BATCH)
        chosen = slice(first, first + BATCH)
        optimizer.zero_grad()
        cross_entropy(given.forward(folded, images[chosen], read, weigh), labels[chosen]).backward()
        optimizer.step()
        decay.step()
    return {name: _stored(*folded[name], logs[name].exp()) for name in folded}


def _stored(weight: Tensor, bias: Tensor, input_scale: Tensor) -> dict[str, np.ndarray]:
    scale = weight_scale(weight)
    codes = torch.round(weight.detach() / scale.reshape(-1, *[1] * (weight.ndim - 1))).clamp(LOW, HIGH).to(torch.int8)
    parts = {"codes": codes, "scale": scale, "bias": bias.detach(), "input_scale": input_scale.detach()}
    return {part: tensor.numpy() for part, tensor in parts.items()}


def write(folder: Path, learner: str = "reference") -> None:
    """Write the reference submission for a learner's network."""
    submission.write(folder / checks.CHOICES, learner, float_layers=FLOAT_LAYERS, input_scales=percentile_scales(learner))
    head = "from __future__ import annotations\n\nimport torch\n\n\n"
    (folder / checks.QAT).write_text(head + inspect.getsource(fake_quantize))
    save(trained(learner), folder)


def save(network: Mapping[str, Mapping[str, np.ndarray]], folder: Path) -> None:
    """Write the file of task 4."""
    arrays = {f"{name}.{part}": array for name, one in network.items() for part, array in one.items()}
    np.savez(folder / given.TRAINED, **arrays)  # type: ignore[arg-type]
