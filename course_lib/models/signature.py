"""The interface of a network: its inputs and outputs, with their shapes.

This module is separate from the exporter, because a process that only runs a network need not spend a second on its imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Signature:
    """The interface of a network. Every network of the course returns one from its method ``signature()``.

    Attributes:
        inputs: each input's name and shape, in the order of ``forward``'s arguments; a dynamic dimension is a string, its
            name. All inputs are float32.
        outputs: names of what ``forward`` returns, in order.
        sizes: example sizes of dynamic dimensions, 2 by default. Never use 1, because torch.export would treat it as fixed.
    """

    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def example(self, **sizes: int) -> tuple[Tensor, ...]:
        """One float32 tensor for each input, normally distributed, the same at every call; ``example(batch=8)`` sets a size."""
        import torch

        known = {**self.sizes, **sizes}
        shapes = [[size if isinstance(size, int) else known.get(size, 2) for size in shape] for shape in self.inputs.values()]
        generator = torch.Generator().manual_seed(0)  # an export must not advance the learner's own random numbers
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    def dynamic(self) -> dict[str, dict[int, str]]:
        """Input name to {axis: dimension name}, inputs without a dynamic dimension included."""
        return {
            name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
            for name, shape in self.inputs.items()
        }
