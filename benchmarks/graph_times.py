"""Device times of calls of PyTorch under CUDA graphs, several candidates in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

ROUNDS = 40
WARM_UP = 3  # rounds that are not counted


def captured(call: Callable[..., Any], arguments: Sequence[Sequence[torch.Tensor]]) -> torch.cuda.CUDAGraph:
    """A graph of one call for each set of arguments, so that no cache holds the next one's."""
    with torch.cuda.stream(torch.cuda.Stream()):
        call(*arguments[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in arguments:
            call(*one)
    return graph


def times_us(graphs: Mapping[str, torch.cuda.CUDAGraph], calls: int) -> dict[str, np.ndarray]:
    """Microseconds of one call by candidate, an array of `ROUNDS`; in every round the candidates run one after the other.

    Args:
        calls: in each graph.
    """
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(WARM_UP + ROUNDS):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[name].append(1000 * begin.elapsed_time(end) / calls)
    return {name: np.array(several[WARM_UP:]) for name, several in times.items()}
