"""CUDA graphs around a torch callable: all kernels of one call in one launch, which is what a small network at batch 1 waits for.

Source: PyTorch's notes on CUDA semantics, section "CUDA Graphs".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_WARMUP = 3  # runs before a capture: libraries load kernels, choose algorithms and allocate, none of which can be captured


class GraphedCallable:
    """One captured graph for each tuple of input shapes; each keeps its own memory for inputs, intermediates and outputs.

    Args:
        function: takes tensors on the GPU and returns a tensor or a tuple of them; it must not synchronize.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._captured: dict[tuple[Any, ...], tuple[Any, list[Tensor], Any]] = {}

    def prepare(self, tensors: Sequence[Tensor]) -> Callable[[], Any]:
        """Copy these inputs into the buffers of the graph, and return a launch of the graph.

        A new shape is captured first. The outputs are in the graph's own memory: the next launch for the
        same shapes overwrites them.
        """
        key = tuple(tensor.shape for tensor in tensors)
        if key not in self._captured:
            self._captured[key] = self._capture(tensors)
        graph, inputs, outputs = self._captured[key]
        for target, tensor in zip(inputs, tensors, strict=True):
            target.copy_(tensor)

        def launch() -> object:
            graph.replay()
            return outputs

        return launch

    def _capture(self, tensors: Sequence[Tensor]) -> tuple[Any, list[Tensor], Any]:
        import torch

        inputs = [tensor.clone() for tensor in tensors]
        beside = torch.cuda.Stream()  # the default stream cannot be captured, and some libraries keep state for each stream
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARMUP):
                self._function(*inputs)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._function(*inputs)
        return graph, inputs, outputs
