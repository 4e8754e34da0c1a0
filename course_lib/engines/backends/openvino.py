"""OpenVINO on the CPU: Intel's compiler for the same ONNX. Its plan is the model itself, compiled when it loads.

Source: OpenVINO's documentation, "CPU Device" and "High-level Performance Hints".
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from course_lib._util.plain_text import reason
from course_lib.engines.backend import Backend
from course_lib.engines.cuda.two_clocks import timed_ms
from course_lib.engines.layers import LayerTable
from course_lib.engines.onnx_file import REPAIR, self_contained
from course_lib.engines.plan import Engine, Feeds, Plan, TensorInfo, check_feeds, check_profiles
from course_lib.engines.progress import Report
from course_lib.errors import BuildError, EngineError, PrecisionError

if TYPE_CHECKING:
    import numpy as np
    import openvino


class OpenVINO(Backend):
    """Compiles when it loads, in FP32, for a comparison on CPUs. `compile` does so once, and keeps the model with its recipe."""

    name: ClassVar[str] = "openvino"
    distributions: ClassVar[tuple[str, ...]] = ("openvino",)
    install: ClassVar[str] = "pip install 'tensorrt-course[openvino]'"

    def on_cpu(self) -> bool:
        """Always: the course compiles for OpenVINO's CPU device."""
        return True

    def compile(
        self, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str], report: Report | None = None
    ) -> Plan:
        """Compile in FP32.

        Raises:
            BuildError: OpenVINO rejects the model.
            PrecisionError: the recipe or the graph has another precision. Where a processor lacks the instructions, OpenVINO computes in
                a wider type, or its 8-bit sums saturate.
        """
        import openvino

        _check_precision(recipe, operators)
        data = self_contained(model)
        started = time.perf_counter()
        _compile(data)
        return Plan(
            backend=self.name,
            version=openvino.__version__.partition("-")[0],
            data=data,
            onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
            recipe=dict(recipe),
            targets=(),
            layers=LayerTable((), operators),
            build_seconds=time.perf_counter() - started,
            notes=("OpenVINO compiles again when the plan loads, for the processor that it finds there",),
        )

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """See `Backend.load`. It compiles again for this processor."""
        return OpenVINOEngine(plan)


class OpenVINOEngine:
    """A compiled model with one inference thread, so that a measurement does not depend on how many cores are free."""

    backend = "openvino"

    def __init__(self, plan: Plan) -> None:
        _check_precision(plan.recipe, plan.layers.operators)  # a plan may be older than this rule
        compiled = _compile(plan.data)
        self._recipe = plan.recipe
        self._request = compiled.create_infer_request()
        self.inputs = tuple(map(_info, compiled.inputs))
        self.outputs = tuple(map(_info, compiled.outputs))

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`. The recipe's profiles bind here too, as they would on a GPU."""
        self._set_inputs(feeds)
        self._run()
        return {info.name: self._request.get_output_tensor(i).data.copy() for i, info in enumerate(self.outputs)}

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`."""
        self._set_inputs(feeds)
        return timed_ms(self._run)

    def _set_inputs(self, feeds: Feeds) -> None:
        import numpy as np
        import openvino

        check_feeds(self.inputs, feeds)
        check_profiles(self._recipe, feeds)
        for index, info in enumerate(self.inputs):
            # not ascontiguousarray, which turns an array of rank 0 into one of rank 1
            tensor = openvino.Tensor(np.asarray(feeds[info.name], order="C"))
            with _one_line():
                self._request.set_input_tensor(index, tensor)

    def _run(self) -> None:
        # `infer()` would be shorter: with one thread, 2026.4 loses its errors and leaves empty outputs. This costs the same time.
        with _one_line():
            self._request.start_async()
            self._request.wait()


def _check_precision(recipe: Mapping[str, Any], operators: Mapping[str, str]) -> None:
    quantized = any("QuantizeLinear" in operator for operator in operators.values())
    if recipe["precision"] != "fp32" or quantized:
        found = "a quantized graph" if recipe["precision"] == "fp32" else recipe["precision"]
        raise PrecisionError(f"the course runs OpenVINO in fp32, found {found}: build it for onnxruntime or tensorrt_rtx")


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise EngineError(f"openvino failed: {_reason(error)}") from None


def _compile(data: bytes) -> openvino.CompiledModel:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",  # left alone, OpenVINO takes bfloat16 wherever the processor has it
    }
    core = openvino.Core()
    try:
        model = core.read_model(data)
    except RuntimeError as error:
        if "Unable to read the model" in str(error) or "protobuf" in str(error):
            raise BuildError("the file is not an ONNX model, or only a part of one") from None
        why = _reason(error)
        advice = "rewrite them with other operators, or use another backend" if "No conversion rule" in why else REPAIR
        raise BuildError(f"openvino rejects the model: {why.rstrip('.')}: {advice}") from None
    try:
        return core.compile_model(model, "CPU", settings)
    except RuntimeError as error:
        raise BuildError(f"openvino cannot compile the model: {_reason(error)}") from None


def _info(port: Any) -> TensorInfo:
    # a port has the names of all tensors that became one with it; its node is called after the graph's own input or output
    own = port.get_node().get_friendly_name().removesuffix("/sink_port_0")
    return TensorInfo(
        own if own in port.get_names() else port.get_any_name(), _shape(port), str(port.get_element_type().to_dtype())
    )


def _shape(port: Any) -> tuple[int, ...]:
    return tuple(-1 if size.is_dynamic else size.get_length() for size in port.get_partial_shape())


def _reason(error: Exception) -> str:
    """OpenVINO's complaint as one line, without the places in its source that it names."""
    details, _, summary = str(error).rpartition("Summary:")  # a rejected model has one at its end
    summary = " ".join(summary.partition("To facilitate")[0].split()).removeprefix("-- ")
    if summary.startswith("Conversion is failed for"):  # the last line of the details has the cause
        summary += f": {details.strip().splitlines()[-1]}"
    return reason(summary or type(error).__name__)
