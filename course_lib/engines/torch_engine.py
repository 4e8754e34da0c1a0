"""PyTorch eager: the baseline that every speedup in this course is measured against."""

from __future__ import annotations

import importlib
import time
from typing import TYPE_CHECKING, Any

from course_lib.engines.base import Feeds, ModelSource, TensorInfo, check_feeds
from course_lib.errors import EngineError

if TYPE_CHECKING:
    import numpy as np


class TorchEngine:
    """A module called as a researcher would call it, in inference mode, on the GPU where there is one."""

    backend = "torch"

    def __init__(self, source: ModelSource) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        module, _, function = source.factory.partition(":")
        self._dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[source.dtype]
        model: Any = getattr(importlib.import_module(module), function)(*source.arguments)
        self._model = model.eval().to(self._device, self._dtype)
        signature = model.signature()
        self.inputs = tuple(
            TensorInfo(name, tuple(-1 if isinstance(size, str) else size for size in shape), "float32")
            for name, shape in signature.inputs.items()
        )
        self.outputs = tuple(TensorInfo(name, (), "float32") for name in signature.outputs)

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        check_feeds(self.inputs, feeds)
        with self._torch.inference_mode():
            outputs = self._forward(self._to_device(feeds))
        named = zip((info.name for info in self.outputs), outputs, strict=True)
        return {name: output.float().cpu().numpy() for name, output in named}

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. On a GPU between two device events, on a CPU between two readings of the clock."""
        check_feeds(self.inputs, feeds)
        with self._torch.inference_mode():
            tensors = self._to_device(feeds)
            if self._device == "cpu":
                started = time.perf_counter()
                self._forward(tensors)
                return 1e3 * (time.perf_counter() - started)
            cuda = self._torch.cuda
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            cuda.synchronize()
            begin.record()
            self._forward(tensors)
            end.record()
            end.synchronize()
            return float(begin.elapsed_time(end))

    def _to_device(self, feeds: Feeds) -> list[Any]:
        arrays = (feeds[info.name] for info in self.inputs)
        # torch shares numpy's memory and warns about memory that it must not write, such as a message's
        writable = (array if array.flags.writeable else array.copy() for array in arrays)
        return [self._torch.from_numpy(array).to(self._device, self._dtype) for array in writable]

    def _forward(self, tensors: list[Any]) -> tuple[Any, ...]:
        try:
            outputs = self._model(*tensors)
        except RuntimeError as error:
            raise EngineError(f"torch failed: {str(error).splitlines()[0]}") from None
        return outputs if isinstance(outputs, tuple) else (outputs,)
