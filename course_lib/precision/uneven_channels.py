"""A network whose channels are of very different loudness, and the same function as before: what makes one scale a tensor fail.

Networks grow like this by themselves, above all with depthwise convolutions, where batch norms are folded into weights of very
different size. Behind a Relu the factor of a channel can be moved from the layer that writes it to the one that reads it, which is also
the cure.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def uneven(module: nn.Module, pairs: Mapping[str, str], spread: float, *, seed: int = 0) -> nn.Module:
    """A copy in which channel k between two convolutions is louder by a factor between ``1 / spread`` and ``spread``.

    Args:
        module: in which nothing but a Relu stands between the two of a pair; it is not changed.
        pairs: name of the Conv2d that writes the channels, to that of the one that reads them.
        spread: 1 or more; factors are drawn evenly on a logarithmic scale.
        seed: of the factors.

    Raises:
        ValueError: a spread below 1.
    """
    import torch

    if spread < 1:
        raise ValueError(f"the spread must be 1 or more, got {spread}")
    changed = copy.deepcopy(module)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for first, second in pairs.items():
            writer, reader = _both(changed, first, second)
            exponent = 2 * torch.rand(len(writer.weight), generator=rng) - 1
            _rescale(writer, reader, spread**exponent)
    return changed


def equalized(module: nn.Module, pairs: Mapping[str, str]) -> nn.Module:
    """The cure: a copy in which both convolutions of each pair use a channel with the same largest weight.

    Channel k is divided by ``sqrt(a / b)``, where a and b are the largest weights that write and read it.

    Args:
        module, pairs: as in `uneven`.
    """
    import torch

    changed = copy.deepcopy(module)
    with torch.no_grad():
        for first, second in pairs.items():
            writer, reader = _both(changed, first, second)
            written = writer.weight.abs().flatten(1).amax(1)
            read = reader.weight.abs().transpose(0, 1).flatten(1).amax(1)
            _rescale(writer, reader, torch.sqrt(read / written))
    return changed


def _both(module: nn.Module, first: str, second: str) -> tuple[Any, Any]:
    return module.get_submodule(first), module.get_submodule(second)


def _rescale(writer: Any, reader: Any, factors: Tensor) -> None:
    writer.weight *= factors[:, None, None, None]
    if writer.bias is not None:
        writer.bias *= factors
    reader.weight /= factors[None, :, None, None]
