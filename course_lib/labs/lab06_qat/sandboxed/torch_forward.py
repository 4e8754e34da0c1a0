"""The network of lab 06 in PyTorch: a table of its layers, and its forward pass with a place for each quantizer.

The grader sends this file as text to a process without the course, so it imports torch only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Shape(NamedTuple):
    """A layer: channels in and out, kernel size, stride, groups, and whether SiLU follows."""

    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    silu: bool = True

    @property
    def weight(self) -> tuple[int, ...]:
        """The shape of the weight, output channels first."""
        per_output = self.inputs // self.groups
        return (self.outputs, per_output, self.kernel, self.kernel) if self.kernel else (self.outputs, per_output)


# In the order in which images pass through them. The head is a matrix product, so it has no kernel.
LAYERS = {
    "stem": Shape(1, 16, kernel=5, stride=4),
    "expand1": Shape(16, 64),
    "depth1": Shape(64, 64, kernel=3, groups=64),
    "project1": Shape(64, 24, silu=False),
    "expand2": Shape(24, 96),
    "depth2": Shape(96, 96, kernel=3, groups=96),
    "project2": Shape(96, 24, silu=False),
    "mix": Shape(24, 96),
    "head": Shape(96, 10, kernel=0, silu=False),
}
Hook = Callable[[str, "Tensor"], "Tensor"]


def forward(
    layers: Mapping[str, tuple[Tensor, Tensor]], images: Tensor, read: Hook | None = None, weigh: Hook | None = None
) -> Tensor:
    """Logits ``(n, 10)`` of images ``(n, 1, 32, 32)``.

    Args:
        layers: weight and bias by name, norms folded.
        read: ``read(name, x)`` takes the place of what a layer reads.
        weigh: ``weigh(name, weight)`` takes the place of its weight.
    """
    from torch.nn import functional

    def layer(name: str, x: Tensor) -> Tensor:
        weight, bias = layers[name]
        x = read(name, x) if read else x
        weight = weigh(name, weight) if weigh else weight
        shape = LAYERS[name]
        if not shape.kernel:
            return functional.linear(x, weight, bias)
        x = functional.conv2d(x, weight, bias, shape.stride, shape.kernel // 2, groups=shape.groups)
        return functional.silu(x) if shape.silu else x

    x = layer("project1", layer("depth1", layer("expand1", layer("stem", images))))
    x = x + layer("project2", layer("depth2", layer("expand2", x)))
    return layer("head", layer("mix", x).mean((2, 3)))
