"""The float network of lab 06 with its batch norms. ``python docs/make_checkpoints.py uneven`` trains it.

Norms and weights have channels of very different size, as networks have them after a long training with norms and depthwise
convolutions. No factor can be moved through SiLU exactly, so equalization cannot undo it.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from course_lib.labs.lab06_qat.layers import LAYERS
from course_lib.models import weights


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
    weights.load(network, "uneven")
    return network.eval()
