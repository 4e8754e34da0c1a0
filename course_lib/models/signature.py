"""The interface of a network: its inputs and outputs, with their shapes.

This module is separate from the exporter, because a process that only runs a network need not spend a second on its imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Signature:
    """The interface of a network. Every network of the course returns one from its method ``signature()``.

    Attributes:
        inputs: each input's name and shape, in the order of ``forward``'s arguments; a dynamic dimension is a string, its
            name. Inputs are float32, except those in `integers`.
        outputs: names of what ``forward`` returns, in order.
        sizes: example sizes of dynamic dimensions, 2 by default. Never use 1, because torch.export would treat it as fixed.
        integers: inputs that are int64 instead, each with the number of values that it may have: 256 means 0 to 255.
    """

    inputs: Mapping[str, tuple[int | str, ...]]
    outputs: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    integers: Mapping[str, int] = field(default_factory=dict)

    def example(self, **sizes: int) -> tuple[Tensor, ...]:
        """One tensor for each input, the same at every call; ``example(batch=8)`` sets a size.

        Floats are normally distributed, integers uniformly.
        """
        import torch

        known = {**self.sizes, **sizes}
        generator = torch.Generator().manual_seed(0)  # an export must not advance the learner's own random numbers

        def tensor(name: str, shape: tuple[int | str, ...]) -> Tensor:
            sized = [size if isinstance(size, int) else known.get(size, 2) for size in shape]
            if name in self.integers:
                return torch.randint(self.integers[name], sized, generator=generator)
            return torch.randn(sized, generator=generator)

        return tuple(tensor(name, shape) for name, shape in self.inputs.items())

    def dynamic(self) -> dict[str, dict[int, str]]:
        """Input name to {axis: dimension name}, inputs without a dynamic dimension included."""
        return {
            name: {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
            for name, shape in self.inputs.items()
        }


def signature_of(model: nn.Module) -> Signature:
    """What the model's method ``signature()`` returns.

    Raises:
        TypeError: the model does not have the method.
    """
    method = getattr(model, "signature", None)
    if method is None:
        raise TypeError(
            f"{type(model).__name__} does not say what its inputs are: give it a method signature() that returns "
            "course_lib.models.Signature(inputs={...}, outputs=(...)), or pass it as export_onnx(..., signature=...). A shape is "
            "such as ('batch', 3, 64, 64)"
        )
    signature: Signature = method()
    return signature


def flat_outputs(outputs: Any) -> list[Tensor]:
    """The tensors that ``forward`` returned, also those in nested tuples, lists and dictionaries, in the order of an export."""
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    return [one for part in outputs for one in flat_outputs(part)] if isinstance(outputs, (tuple, list)) else [outputs]
