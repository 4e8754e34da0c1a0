"""OpenVINO on the CPU: Intel's compiler for the same ONNX. Its plan is the model itself, compiled when it loads.

Source: OpenVINO's documentation, "CPU Device" and "High-level Performance Hints".
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from course_lib._util.cpu_int8 import has_byte_dot_products
from course_lib._util.plain_text import reason
from course_lib.engines.backend import Backend
from course_lib.engines.cuda.two_clocks import timed_ms
from course_lib.engines.layers import Layer, LayerTable, LayerTensor
from course_lib.engines.onnx_file import REPAIR, self_contained
from course_lib.engines.plan import Engine, Feeds, Plan, TensorInfo, check_feeds, check_profiles
from course_lib.engines.progress import Report
from course_lib.errors import BuildError, EngineError, PrecisionError

if TYPE_CHECKING:
    import numpy as np
    import openvino

# What computes where the graph says floating point. Left alone, OpenVINO takes bfloat16 wherever the processor has it.
_FLOAT = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "int8": "f32"}
_WORDS = {  # OpenVINO's element types in the words of layer tables
    "f32": "Float", "f16": "Half", "bf16": "BFloat16", "i8": "Int8", "u8": "UInt8", "i32": "Int32", "i64": "Int64",
    "boolean": "Bool", "f64": "Double", "i16": "Int16", "u16": "UInt16", "u32": "UInt32", "u64": "UInt64", "i4": "Int4",
    "f8e4m3": "FP8", "f8e5m2": "FP8", "f4e2m1": "FP4",
}  # fmt: skip


class OpenVINO(Backend):
    """Compiles when it loads. `compile` does so once for the layer table, and keeps the model with its recipe."""

    name: ClassVar[str] = "openvino"
    distributions: ClassVar[tuple[str, ...]] = ("openvino",)
    install: ClassVar[str] = "pip install 'tensorrt-course[openvino]'"

    def on_cpu(self) -> bool:
        """Always: the course compiles for OpenVINO's CPU device."""
        return True

    def compile(
        self, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str], report: Report | None = None
    ) -> Plan:
        """Compile with the recipe's precision for floating point.

        A processor without that type computes in a wider one, which is rejected. INT8 is rejected on an x86 processor whose
        8-bit kernels saturate, because its answers would be wrong.

        Raises:
            BuildError: OpenVINO rejects the model, or does not have the precision.
            PrecisionError: the layers do not have the recipe's precision.
        """
        import openvino

        data = self_contained(model)
        started = time.perf_counter()
        compiled = _compile(data, recipe["precision"])
        seconds = time.perf_counter() - started
        layers = layer_table(compiled.get_runtime_model(), operators, _output_nodes(data))
        _check_precision(layers, recipe["precision"])
        return Plan(
            backend=self.name,
            version=openvino.__version__.partition("-")[0],
            data=data,
            onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
            recipe=dict(recipe),
            targets=(),
            layers=layers,
            build_seconds=seconds,
            notes=(
                "OpenVINO compiles again when the plan loads, for the processor that it finds there",
                *layers.precision_notes(recipe["precision"]),
            ),
        )

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """See `Backend.load`. It compiles again for this processor.

        Raises:
            PrecisionError: this processor does not compute in the recipe's precision.
        """
        return OpenVINOEngine(plan)


class OpenVINOEngine:
    """A compiled model with one inference thread, so that a measurement does not depend on how many cores are free."""

    backend = "openvino"

    def __init__(self, plan: Plan) -> None:
        compiled = _compile(plan.data, plan.recipe["precision"])
        # it may be another processor than the one of the build
        _check_precision(layer_table(compiled.get_runtime_model(), {}), plan.recipe["precision"])
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


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise EngineError(f"openvino failed: {_reason(error)}") from None


def _compile(data: bytes, precision: str) -> openvino.CompiledModel:
    import openvino

    if precision not in _FLOAT:
        raise BuildError(f"OpenVINO's CPU plugin has no {precision}: the recipe's precision is one of {', '.join(_FLOAT)}")
    settings = {
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": _FLOAT[precision],
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


def _check_precision(layers: LayerTable, precision: str) -> None:
    if precision == "int8" and platform.machine() in ("x86_64", "AMD64") and not has_byte_dot_products():
        # oneDNN's kernels for AVX2 and plain AVX-512; OpenVINO has no setting that avoids them
        raise PrecisionError(
            "OpenVINO's INT8 kernels saturate on this processor, which has no 8-bit dot products (VNNI), "
            "and its answers would be wrong: build the model for onnxruntime, or the float model with precision fp32"
        )
    if precision == "fp32" and not layers.kernels:
        return  # OpenVINO computed everything when it compiled, and lists every call
    try:
        layers.check_precision(precision)
    except PrecisionError:
        if precision not in ("fp16", "bf16"):
            raise
        found = " and ".join(sorted(layers.dtype_counts()))
        raise PrecisionError(
            f"the recipe says {precision}, but OpenVINO computes only with {found} on this processor: set precision to fp32"
        ) from None


def layer_table(runtime_model: Any, operators: Mapping[str, str], output_nodes: Mapping[str, str] | None = None) -> LayerTable:
    """The layer table of OpenVINO's runtime model: what each call executes, with the chosen primitive as tactic.

    OpenVINO computes constants, and everything that depends only on them, when it compiles the model. They are not rows.
    Weights have the type in which they are stored; a primitive may convert them once.

    Args:
        runtime_model: runtime model of a compiled model.
        operators: operator type by ONNX node name; with ``{}``, rows have the names of OpenVINO's operations.
        output_nodes: ONNX node by graph output; OpenVINO names such a node after the output.
    """
    renamed = output_nodes or {}
    fixed: set[str] = set()
    rows = []
    for operation in runtime_model.get_ordered_ops():
        kind = _told(operation, "layerType")
        sources = [port.get_source_output().get_node().get_friendly_name() for port in operation.inputs()]
        if kind == "Const" or (sources and fixed.issuperset(sources)):
            fixed.add(operation.get_friendly_name())
        elif kind not in ("Input", "Output"):
            read = [(source, _tensor(source, port)) for source, port in zip(sources, operation.inputs(), strict=True)]
            nodes = [renamed.get(name, name) for name in _told(operation, "originalLayersNames").split(",")]
            rows.append(
                Layer(
                    name=operation.get_friendly_name(),
                    kind=kind,
                    inputs=tuple(tensor for source, tensor in read if source not in fixed),
                    constants=tuple(tensor for source, tensor in read if source in fixed),
                    outputs=tuple(_tensor(operation.get_friendly_name(), port) for port in operation.outputs()),
                    tactic=_told(operation, "primitiveType"),
                    onnx_nodes=tuple(node for node in nodes if node and (not operators or node in operators)),
                )
            )
    return LayerTable(tuple(rows), dict(operators))


def _output_nodes(data: bytes) -> dict[str, str]:
    try:
        import onnx
    except ImportError:
        return {}
    graph = onnx.load_from_string(data).graph
    wanted = {value.name for value in graph.output}
    return {name: node.name for node in graph.node for name in node.output if name in wanted}


def _told(operation: Any, key: str) -> str:
    known = operation.get_rt_info()
    return str(known[key].astype(str)) if key in known else ""


def _tensor(name: str, port: Any) -> LayerTensor:
    word = port.get_element_type().get_type_name()
    return LayerTensor(name, _shape(port), _WORDS.get(word, "" if word == "dynamic" else word))


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
