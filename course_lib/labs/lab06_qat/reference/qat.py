"""Quantization-aware training with learned scales."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

LOW, HIGH = -128, 127
EPS = 1e-5  # of the batch norms
CALIBRATION, STEPS, BATCH, RATE = 500, 160, 64, 2e-3
START = 0.6  # of the largest value: clips a little, and gives small channels more steps


def fake_quantize(x: Tensor, scale: Tensor, axis: int | None = None) -> Tensor:
    """Round to the codes of INT8 and back; gradients pass straight through the rounding, to `x` and to `scale`."""
    if axis is not None:
        scale = scale.reshape([-1 if place == axis else 1 for place in range(x.ndim)])
    clipped = torch.clamp(x / scale, LOW, HIGH)
    codes = clipped + (torch.round(clipped) - clipped).detach()
    return codes * scale


def fold(layer: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer, with its batch norm folded in."""
    if "gamma" not in layer:
        return layer["weight"].clone(), layer["bias"].clone()
    factor = layer["gamma"] / torch.sqrt(layer["variance"] + EPS)
    return layer["weight"] * factor.reshape(-1, 1, 1, 1), layer["beta"] - layer["mean"] * factor


def weight_scale(weight: Tensor) -> Tensor:
    """The scale of each output channel."""
    return weight.detach().abs().flatten(1).amax(1).clamp_min(1e-12) / HIGH


def train(
    layers: Mapping[str, Mapping[str, Tensor]], images: Tensor, labels: Tensor, forward: Callable[..., Tensor]
) -> dict[str, dict[str, Tensor]]:
    """The trained network: codes, their scales, bias and input scale by layer."""
    folded = {name: fold(layer) for name, layer in layers.items()}
    largest: dict[str, Tensor] = {}

    def observe(name: str, x: Tensor) -> Tensor:
        largest[name] = x.abs().amax()
        return x

    with torch.no_grad():
        forward(folded, images[:CALIBRATION], read=observe)
    # A step of the optimizer changes a logarithm by the same amount, whatever the size of the scale.
    logs = {name: (START * amax / HIGH).log().requires_grad_() for name, amax in largest.items()}
    for pair in folded.values():
        for part in pair:
            part.requires_grad_()

    def read(name: str, x: Tensor) -> Tensor:
        return fake_quantize(x, logs[name].exp())

    def weigh(_: str, weight: Tensor) -> Tensor:
        return fake_quantize(weight, weight_scale(weight), axis=0)

    parameters = [part for pair in folded.values() for part in pair]
    optimizer = torch.optim.Adam([{"params": parameters, "lr": RATE}, {"params": [*logs.values()], "lr": 2 * RATE}])
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        first = step * BATCH % (len(images) - BATCH)
        chosen = slice(first, first + BATCH)
        optimizer.zero_grad()
        cross_entropy(forward(folded, images[chosen], read, weigh), labels[chosen]).backward()
        optimizer.step()
        rate.step()
    return {name: quantized(*folded[name], logs[name].exp()) for name in folded}


def quantized(weight: Tensor, bias: Tensor, input_scale: Tensor) -> dict[str, Tensor]:
    """What is stored of a trained layer."""
    scale = weight_scale(weight)
    codes = fake_quantize(weight.detach(), scale, axis=0) / scale.reshape(-1, *[1] * (weight.ndim - 1))
    return {
        "codes": torch.round(codes).to(torch.int8),
        "scale": scale,
        "bias": bias.detach(),
        "input_scale": input_scale.detach(),
    }
