"""The float network of lab 06 with its batch norms, and how it was trained: ``python -m course_lib.labs.lab06_qat.float_network``.

Norms and weights start with channels of very different size, as networks have them after a long training with norms and depthwise
convolutions. Training keeps the difference. No factor can be moved through SiLU exactly, so equalization cannot undo it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from course_lib.labs.lab06_qat.layers import LAYERS
from course_lib.models import digits, weights
from course_lib.models.digit_dataset import perturb

CHECKPOINT = "uneven"
SPREAD = 12.0  # channels start between this and its reciprocal
EPOCHS, BATCH, RATE, STRENGTH = 40, 64, 2e-3, 1.5
# Nothing but SiLU is between the norm of the first and the weight of the second.
_READERS = {
    **{"stem": "expand1", "expand1": "depth1", "depth1": "project1"},
    **{"expand2": "depth2", "depth2": "project2", "mix": "head"},
}


class Network(nn.Module):
    """The float network: a convolution with norm for each layer of `LAYERS`, and the head."""

    def __init__(self) -> None:
        super().__init__()
        convolutions = {name: shape for name, shape in LAYERS.items() if shape.kernel}
        self.convs = nn.ModuleDict({
            name: nn.Conv2d(one.inputs, one.outputs, one.kernel, one.stride, one.kernel // 2, groups=one.groups, bias=False)
            for name, one in convolutions.items()
        })  # fmt: skip
        self.norms = nn.ModuleDict({name: nn.BatchNorm2d(one.outputs) for name, one in convolutions.items()})
        self.head = nn.Linear(LAYERS["head"].inputs, LAYERS["head"].outputs)

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``(n, 10)`` of images ``(n, 1, 32, 32)``; with the statistics of the batch in training mode."""
        x = self._unit("project1", self._unit("depth1", self._unit("expand1", self._unit("stem", images))))
        x = x + self._unit("project2", self._unit("depth2", self._unit("expand2", x)))
        logits: Tensor = self.head(self._unit("mix", x).mean((2, 3)))
        return logits

    def _unit(self, name: str, x: Tensor) -> Tensor:
        x = self.norms[name](self.convs[name](x))
        return functional.silu(x) if LAYERS[name].silu else x


def trained() -> Network:
    """The shipped weights, in eval mode."""
    network = Network()
    weights.load(network, CHECKPOINT)
    return network.eval()


def train(seed: int = 0) -> Network:
    """Train the network from scratch; the same on the same machine."""
    torch.manual_seed(seed)
    network, rng, data = Network(), np.random.default_rng(seed), digits("train")
    _make_uneven(network)
    labels, steps = torch.from_numpy(data.labels), len(data) // BATCH
    optimizer = torch.optim.Adam(network.parameters(), RATE)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * steps)
    for _ in range(EPOCHS):
        images, order = torch.from_numpy(perturb(data.images, rng, strength=STRENGTH)), rng.permutation(len(data))
        for chosen in np.split(order[: steps * BATCH], steps):
            optimizer.zero_grad()
            functional.cross_entropy(network(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            rate.step()
    return network.eval()


def _make_uneven(network: Network) -> None:
    """Enlarge some channels and shrink others, and divide the weights that read them, which is the same function but for SiLU."""
    with torch.no_grad():
        for name, reader in _READERS.items():
            factors = SPREAD ** (2 * torch.rand(LAYERS[name].outputs) - 1)
            layer: nn.Module = network.convs[reader] if LAYERS[reader].kernel else network.head
            weight, channels = layer.get_parameter("weight"), 0 if LAYERS[reader].groups > 1 else 1
            weight.div_(factors.reshape([-1 if axis == channels else 1 for axis in range(weight.ndim)]))
            network.norms[name].get_parameter("weight").mul_(factors)


if __name__ == "__main__":
    print(weights.save(train(), CHECKPOINT))
