"""The layers of lab 06's network, by name."""

from __future__ import annotations

from typing import NamedTuple


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
