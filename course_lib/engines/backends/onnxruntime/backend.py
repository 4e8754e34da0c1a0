"""ONNX Runtime as a backend of the course: its plan is the model itself, which the session optimizes when it loads."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from course_lib._util.plain_text import reason
from course_lib.engines.backend import Backend
from course_lib.engines.backends.onnxruntime import session
from course_lib.engines.cuda import driver
from course_lib.engines.cuda.stream import own_stream
from course_lib.engines.cuda.two_clocks import timed_ms
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Engine, Feeds, Plan, TensorInfo, check_feeds, check_profiles
from course_lib.engines.progress import Report
from course_lib.errors import EngineError

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime

_Result = TypeVar("_Result")
_DTYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
    "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8", "tensor(uint64)": "uint64",
    "tensor(uint32)": "uint32", "tensor(uint16)": "uint16", "tensor(uint8)": "uint8", "tensor(bool)": "bool",
}  # fmt: skip


class OnnxRuntime(Backend):
    """Runs the same ONNX on any machine: on the GPU with onnxruntime-gpu and a GPU, otherwise on the CPU."""

    name: ClassVar[str] = "onnxruntime"
    distributions: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnxruntime-gpu")
    install: ClassVar[str] = "pip install onnxruntime"
    runner_rank: ClassVar[int | None] = 2

    def compile(
        self, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str], report: Report | None = None
    ) -> Plan:
        """Check that ONNX Runtime accepts the model and keep it with its recipe.

        Raises:
            BuildError: it rejects the model; the message has one line and names the node.
            BackendUnavailable: there is a GPU, but the CUDA provider does not load.
        """
        import onnxruntime

        from course_lib.engines.onnx_file import self_contained

        data = self_contained(model)
        started = time.perf_counter()
        where, here = session.device(), driver.capability()
        session.open_session(data, where)
        advice = f"it runs on the CPU although a GPU ({here}) is here: replace the package onnxruntime with onnxruntime-gpu"
        return Plan(
            backend=self.name,
            version=onnxruntime.__version__,
            data=data,
            onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
            recipe=dict(recipe),
            targets=(),
            layers=LayerTable((), operators),
            build_seconds=time.perf_counter() - started,
            notes=(
                "ONNX Runtime runs the graph as it is. It does not prove precision and profiles; a TensorRT build does",
                *([advice] if where == "cpu" and here else []),
            ),
        )

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """See `Backend.load`."""
        return OnnxRuntimeEngine(plan)

    def on_cpu(self) -> bool:
        """See `Backend.on_cpu`."""
        return session.device() == "cpu"

    def wants_lowered_int8(self) -> bool:
        """True on the CPU, where Q/DQ pairs that are not lowered run with float arithmetic in between."""
        return self.on_cpu()


class OnnxRuntimeEngine:
    """A session on the GPU with onnxruntime-gpu and a GPU, otherwise on the CPU with one thread.

    Attributes:
        device: ``"cuda"`` or ``"cpu"``.
    """

    backend = "onnxruntime"

    def __init__(self, plan: Plan) -> None:
        self._recipe = plan.recipe
        self.device = session.device()
        self._clock = own_stream() if self.device == "cuda" else None
        stream, tf32 = self._clock.handle if self._clock else 0, "tf32" in plan.recipe.get("flags", ())
        self._session = session.open_session(plan.data, self.device, stream=stream, tf32=tf32)
        self._tuned: set[tuple[tuple[int, ...], ...]] = set()
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
        binding = self._bound(feeds)
        shapes = tuple(feeds[info.name].shape for info in self.inputs)
        if shapes not in self._tuned:
            _enqueue(self._session, binding)
            self._tuned.add(shapes)
        return self._clock.time_ms(lambda: _enqueue(self._session, binding))

    def _check(self, feeds: Feeds) -> None:
        check_feeds(self.inputs, feeds)
        check_profiles(self._recipe, feeds)

    def _bound(self, feeds: Feeds) -> onnxruntime.IOBinding:
        """Copies of the arrays on the GPU. Outputs stay there, too: ONNX Runtime determines their sizes, which may depend on the inputs."""
        import onnxruntime

        binding = self._session.io_binding()
        for info in self.outputs:
            binding.bind_output(info.name, self.device, 0)
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, self.device, 0))
        binding.synchronize_inputs()
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


def _info(node: Any) -> TensorInfo:
    if node.type not in _DTYPES:
        raise EngineError(f"{node.name!r} is {node.type}, which numpy does not have: cast it to float32 or int32 in the graph")
    return TensorInfo(node.name, tuple(n if isinstance(n, int) else -1 for n in node.shape), _DTYPES[node.type])
