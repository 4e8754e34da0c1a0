"""PyTorch, the baseline of every speedup in this course, in eager mode or with its own accelerators."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from course_lib._util.plain_text import reason
from course_lib.engines.backends.torch.graphs import GraphedCallable
from course_lib.engines.cuda import two_clocks
from course_lib.engines.plan import Feeds, ModelSource, TensorInfo, check_feeds
from course_lib.errors import BackendUnavailable, EngineError
from course_lib.models.signature import Signature, flat_outputs, signature_of

if TYPE_CHECKING:
    import numpy as np
    import torch

_Call = Callable[[], Any]  # one forward pass on inputs that are in place


class TorchEngine:
    """A module in inference mode, on the GPU if there is one, called in the variant of the source.

    Variants: ``eager`` calls the module. ``compile`` uses `torch.compile` on the whole graph, or raises an error. ``cuda_graph``
    captures the module once and launches it as a whole. ``compile+cuda_graph`` captures the compiled kernels.

    Raises:
        BackendUnavailable: a CUDA graph on a machine without an NVIDIA GPU.
        EngineError: the source's function does not make a module with a method ``signature()``.
    """

    backend = "torch"

    def __init__(self, source: ModelSource) -> None:
        import torch

        torch.set_num_threads(1)
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        steps = source.variant.split("+")
        if "cuda_graph" in steps and self._device == "cpu":
            raise BackendUnavailable(
                f"the torch variant {source.variant!r} needs an NVIDIA GPU, and torch sees none: choose 'eager' or 'compile'"
            )
        self._dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[source.dtype]
        model, signature = _made(source)
        self._model = model.eval().to(self._device, self._dtype)
        self.inputs = tuple(
            TensorInfo(
                name,
                tuple(-1 if isinstance(size, str) else size for size in shape),
                "int64" if name in signature.integers else "float32",
            )
            for name, shape in signature.inputs.items()
        )
        self.outputs = tuple(TensorInfo(name, (), "float32") for name in signature.outputs)
        # fullgraph: what cannot be compiled is an error, and so is a shape too many, after which torch would go on in eager
        self._callable = torch.compile(self._model, fullgraph=True) if "compile" in steps else self._model
        self._graphs = GraphedCallable(self._callable) if "cuda_graph" in steps else None
        self._ran: set[tuple[Any, ...]] | None = set() if steps == ["compile"] else None

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        check_feeds(self.inputs, feeds)
        with self._torch.inference_mode(), _one_line():
            outputs = self._prepare(self._to_device(feeds))()
        tensors = flat_outputs(outputs)
        names = [info.name for info in self.outputs]
        if len(tensors) != len(names):
            found = f"{len(tensors)} tensor{'s' * (len(tensors) != 1)}"
            raise EngineError(
                f"the module returns {found}, but its signature names {len(names)} ({', '.join(names)}): name every output"
            )
        return {name: _array(tensor) for name, tensor in zip(names, tensors, strict=True)}

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. A GPU is timed with two device events, a CPU with the host's clock.

        Variants with a CUDA graph are timed as engines are, by enough replays to take 2 ms. The others are called once, because the
        host's part is theirs. Work that a variant does once for each shape, such as compiling and capturing, happens before the clock
        starts. The same holds for the copy into the input buffers of a CUDA graph.

        Raises:
            EngineError: the feeds do not fit, torch fails, or the module leaves work on another stream than the current one.
        """
        check_feeds(self.inputs, feeds)
        with self._torch.inference_mode(), _one_line():
            call = self._prepare(self._to_device(feeds))
            if self._device == "cpu":
                return two_clocks.timed_ms(call)
            single_ms = two_clocks.torch_event_ms(self._torch, call)
            if not self._graphs:
                return single_ms
            runs = two_clocks.runs_in_a_reading(single_ms)
            return two_clocks.torch_event_ms(self._torch, lambda: [call() for _ in range(runs)]) / runs

    def _to_device(self, feeds: Feeds) -> list[torch.Tensor]:
        arrays = (feeds[info.name] for info in self.inputs)
        # torch shares numpy's memory and warns about memory that it must not write, such as a message's
        writable = (array if array.flags.writeable else array.copy() for array in arrays)
        tensors = [self._torch.from_numpy(array).to(self._device) for array in writable]
        return [tensor.to(self._dtype) if tensor.is_floating_point() else tensor for tensor in tensors]

    def _prepare(self, tensors: list[Any]) -> _Call:
        """The forward pass on these inputs, after all work that is done once for each shape."""
        if self._graphs:
            return self._graphs.prepare(tensors)
        call = functools.partial(self._callable, *tensors)
        shapes = tuple(tensor.shape for tensor in tensors)
        if self._ran is not None and shapes not in self._ran:
            call()  # torch compiles on the first call, and again where a second shape makes a dimension dynamic
            self._ran.add(shapes)
        return call


def _made(source: ModelSource) -> tuple[torch.nn.Module, Signature]:
    """The module that the source's function makes, and its signature."""
    module, _, function = source.factory.partition(":")
    try:
        made = getattr(importlib.import_module(module), function)(*source.arguments)
        return made, signature_of(made)
    except (ImportError, AttributeError, TypeError) as error:
        raise EngineError(f"{source.factory} does not make a network: {error}") from None


def _array(tensor: torch.Tensor) -> np.ndarray:
    array: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return array


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except EngineError:
        raise
    except Exception as error:  # its compiler raises classes that are not RuntimeError, and explains in paragraphs
        raise EngineError(f"torch failed: {reason(' '.join(str(error).split()) or type(error).__name__)}") from None
