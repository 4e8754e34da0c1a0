"""The networks as the torch workers make them: each once, copied for every candidate."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any


def network(channels_last: bool, factory: str, *arguments: Any) -> Any:
    """A network of `yardsticks.make`, with the weights of its convolutions in channels-last order where that is asked for.

    Torch takes the order of a convolution's weights for its result, so all activations follow.
    """
    import torch

    model = copy.deepcopy(_made(factory, arguments))
    return model.to(memory_format=torch.channels_last) if channels_last else model


@cache
def _made(factory: str, arguments: tuple[Any, ...]) -> Any:
    from benchmarks import yardsticks

    return yardsticks.make(factory, *arguments)
