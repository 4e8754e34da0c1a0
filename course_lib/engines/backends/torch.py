"""PyTorch, the baseline of every speedup in this course, in eager mode or with its own accelerators."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from course_lib._util.plain_text import reason
from course_lib.engines.backend import Availability, Backend
from course_lib.engines.cuda import two_clocks
from course_lib.engines.plan import Engine, Feeds, ModelSource, TensorInfo, check_feeds
from course_lib.errors import BackendUnavailable, EngineError
from course_lib.models.signature import Signature, flat_outputs, signature_of

if TYPE_CHECKING:
    import numpy as np
    import torch

_Call = Callable[[], Any]  # one forward pass on inputs that are in place
_WARMUP = 3  # runs before a capture: libraries load kernels, choose algorithms and allocate, none of which can be captured


class Torch(Backend):
    """PyTorch as the baseline. It makes engines from a `ModelSource`, not from a plan."""

    name: ClassVar[str] = "torch"
    distributions: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "pip install torch==2.13.0"

    def availability(self) -> Availability:
        """See `Backend.availability`."""
        found = super().availability()
        return replace(found, no_build=found.no_build or "the baseline is not built: it runs the module as it is")

    def load_module(self, source: ModelSource) -> Engine:
        """See `Backend.load_module`; `TorchEngine` says what the variants are."""
        return TorchEngine(source)


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


class GraphedCallable:
    """A callable as CUDA graphs: all kernels of one call in one launch, which is what a small network at batch 1 waits for.

    There is one graph for each tuple of input shapes. Each keeps its own memory for inputs, intermediates and outputs.

    Args:
        function: takes tensors on the GPU and returns a tensor or a tuple of them; it must not synchronize.

    Source: PyTorch's notes on CUDA semantics, section "CUDA Graphs".
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._captured: dict[tuple[Any, ...], tuple[Any, list[torch.Tensor], Any]] = {}

    def prepare(self, tensors: Sequence[torch.Tensor]) -> Callable[[], Any]:
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

    def _capture(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, list[torch.Tensor], Any]:
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
