"""Engines of ONNX Runtime: sessions with feeds as numpy arrays, or as torch tensors that are not copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from course_lib._util.plain_text import reason
from course_lib.engines.backends.onnxruntime import session as ort_session
from course_lib.engines.cuda.stream import own_stream
from course_lib.engines.cuda.two_clocks import timed_ms
from course_lib.engines.plan import Feeds, Plan, TensorInfo, check_feeds, check_profiles
from course_lib.errors import EngineError

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime
    import torch

_Result = TypeVar("_Result")
_DTYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
    "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8", "tensor(uint64)": "uint64",
    "tensor(uint32)": "uint32", "tensor(uint16)": "uint16", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip


class OnnxRuntimeEngine:
    """A session on the GPU with onnxruntime-gpu and a GPU, otherwise on the CPU with one thread.

    Attributes:
        device: ``"cuda"`` or ``"cpu"``.
        placement: operators by the device that runs them. On CUDA, some run on the CPU on purpose, such as those on shapes.
    """

    backend = "onnxruntime"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.device = ort_session.device()
        self._sessions: dict[int, Any] = {}  # by handle of their stream; the CPU's one has 0
        self._clock = own_stream() if self.device == "cuda" else None
        self._session = self._on(self._clock.handle if self._clock else 0)
        self._tuned: set[tuple[tuple[int, ...], ...]] = set()
        self.placement = ort_session.placement(self._session)
        self.inputs = tuple(map(_info, self._session.get_inputs()))
        self.outputs = tuple(map(_info, self._session.get_outputs()))

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`. The recipe's profiles bind here too, as they would on a GPU."""
        self._check(feeds)
        outputs = _in_one_line(lambda: self._session.run(None, dict(feeds)))
        return dict(zip((info.name for info in self.outputs), outputs, strict=True))

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. On CUDA this is the device time between two events, without copies; on the CPU it is host time.

        On CUDA a shape's first run chooses convolution algorithms and takes memory; it happens before the clock starts.
        """
        self._check(feeds)
        if self._clock is None:
            return timed_ms(lambda: _in_one_line(lambda: self._session.run(None, dict(feeds))))
        binding = self._bind_arrays(feeds)
        shapes = tuple(feeds[info.name].shape for info in self.inputs)
        if shapes not in self._tuned:
            _enqueue(self._session, binding)
            self._tuned.add(shapes)
        return self._clock.time_ms(lambda: _enqueue(self._session, binding))

    def run_tensors(
        self, tensors: Mapping[str, torch.Tensor], *, stream: torch.cuda.Stream | None = None
    ) -> dict[str, torch.Tensor]:
        """Outputs as torch tensors, for inputs that are torch tensors on the engine's device, without copies.

        On CUDA this method only enqueues the work, in the order of the stream, and does not wait for it. The outputs are in ONNX
        Runtime's memory, which is freed with the last tensor in it. Another stream that reads them must wait for this one. A
        session is tied to its stream, so the first call on each stream makes a session, and each session holds the weights again.
        This method needs torch; `infer` and `time_ms` do not.

        Args:
            tensors: contiguous tensors by input name, on the first GPU or on the CPU as `device` says.
            stream: on CUDA, where to run; default torch's current stream.

        Raises:
            EngineError: a tensor on another device or not contiguous, or what `infer` rejects.
        """
        import torch

        self._check(
            {name: SimpleNamespace(dtype=_dtype(tensor), shape=tuple(tensor.shape)) for name, tensor in tensors.items()}
        )
        for name, tensor in tensors.items():
            self._check_memory(name, tensor)
        handle = 0
        if self.device == "cuda":
            stream = stream or torch.cuda.current_stream(0)
            handle = stream.cuda_stream
            for tensor in tensors.values():
                tensor.record_stream(stream)  # torch must not hand out this memory again before the run is over
        session = self._on(handle)
        binding = self._bind_outputs(session)
        for info in self.inputs:
            tensor = tensors[info.name]
            binding.bind_input(info.name, self.device, 0, _numpy_type(info.dtype), tuple(tensor.shape), tensor.data_ptr())
        _enqueue(session, binding)
        values = zip((info.name for info in self.outputs), binding.get_outputs(), strict=True)
        return {name: _as_tensor(value, self.device) for name, value in values}

    def _on(self, stream: int) -> onnxruntime.InferenceSession:
        if stream not in self._sessions:
            tf32 = "tf32" in self._plan.recipe.get("flags", ())
            self._sessions[stream] = ort_session.open_session(self._plan.data, self.device, stream=stream, tf32=tf32)
        return self._sessions[stream]

    def _check(self, feeds: Mapping[str, Any]) -> None:
        check_feeds(self.inputs, feeds)
        check_profiles(self._plan.recipe, feeds)

    def _check_memory(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.device.type != self.device or (tensor.device.index or 0) != 0:
            wanted = "cuda:0" if self.device == "cuda" else "cpu"
            raise EngineError(f"input {name!r} is on {tensor.device}, this engine runs on {wanted}: move the tensor there")
        if not tensor.is_contiguous():
            raise EngineError(
                f"input {name!r} is not contiguous, which a binding without a copy needs: call .contiguous() on it"
            )

    def _bind_arrays(self, feeds: Feeds) -> onnxruntime.IOBinding:
        """A binding of the session's inputs to copies of numpy arrays on the GPU."""
        import onnxruntime

        binding = self._bind_outputs(self._session)
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device, 0))
        binding.synchronize_inputs()
        return binding

    def _bind_outputs(self, session: onnxruntime.InferenceSession) -> onnxruntime.IOBinding:
        """A binding whose outputs stay on the device. ONNX Runtime determines their sizes, which may depend on the inputs."""
        binding = session.io_binding()
        for info in self.outputs:
            binding.bind_output(info.name, self.device, 0)
        return binding


def _enqueue(session: Any, binding: Any) -> None:
    import onnxruntime

    options = onnxruntime.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    _in_one_line(lambda: session.run_with_iobinding(binding, options))


def _in_one_line(run: Callable[[], _Result]) -> _Result:
    """The result of `run`. Raises EngineError with the first line of onnxruntime's message."""
    try:
        return run()
    except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
        raise EngineError(f"onnxruntime failed: {reason(error)}") from None


class _CudaArray:
    """ONNX Runtime's memory on the GPU as other libraries see it; this object keeps the memory alive.

    Source: the CUDA Array Interface, version 3.
    """

    def __init__(self, value: Any, dtype: str) -> None:
        import numpy as np

        self._value = value
        self.__cuda_array_interface__ = {
            "shape": tuple(value.shape()),
            "typestr": np.dtype(dtype).str,
            "data": (value.data_ptr(), False),
            "version": 3,
        }


def _as_tensor(value: Any, device: str) -> torch.Tensor:
    import torch

    if device == "cpu":
        return torch.from_numpy(value.numpy())
    return torch.as_tensor(_CudaArray(value, _DTYPES[value.data_type()]), device="cuda:0")


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _numpy_type(dtype: str) -> type[np.generic]:
    import numpy as np

    return np.dtype(dtype).type


def _info(node: Any) -> TensorInfo:
    if node.type not in _DTYPES:
        raise EngineError(f"{node.name!r} is {node.type}, which numpy does not have: cast it to float32 or int32 in the graph")
    return TensorInfo(node.name, tuple(n if isinstance(n, int) else -1 for n in node.shape), _DTYPES[node.type])
