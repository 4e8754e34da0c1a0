"""ModelOpt's tools for ONNX files in lectures 5 and 6: AutoCast, and post-training quantization."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from course_lib.errors import CourseError

NEEDS = "pip install 'tensorrt-course[qat]' onnxslim lief nvidia-ml-py"


def autocast(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray] | None = None, *, data_max: float = 512
) -> onnx.ModelProto:
    """A model in FP16 whose inputs and outputs stay FP32.

    Args:
        model: in FP32.
        feeds: real inputs, from which AutoCast takes the magnitudes of all tensors; default: it draws random ones.
        data_max: a node stays in FP32 if one of its tensors has a larger magnitude.

    Raises:
        CourseError: ModelOpt's ONNX tools cannot be imported.
    """
    convert = _tool("AutoCast", "modelopt.onnx.autocast", "convert_to_mixed_precision")
    with tempfile.TemporaryDirectory() as folder:
        source, calibration = Path(folder, "model.onnx"), Path(folder, "inputs.npz")
        onnx.save(model, source)
        if feeds is not None:
            np.savez(calibration, allow_pickle=False, **feeds)
        found: onnx.ModelProto = convert(
            str(source),
            low_precision_type="fp16",
            keep_io_types=True,
            data_max=data_max,
            calibration_data=None if feeds is None else str(calibration),
        )
    del found.graph.value_info[:]  # AutoCast writes shapes that ONNX Runtime rejects
    return onnx.shape_inference.infer_shapes(found)


def quantize_int8(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], *, method: str = "entropy") -> onnx.ModelProto:
    """A model with Q/DQ pairs where ModelOpt places them; the other nodes stay FP32.

    Args:
        model: in FP32.
        feeds: inputs for the calibration.
        method: "entropy", which is ModelOpt's default for INT8, or "max".

    Raises:
        CourseError: ModelOpt's ONNX tools cannot be imported.
    """
    quantize = _tool("quantization", "modelopt.onnx.quantization", "quantize")
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        source, target = Path(folder, "model.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        quantize(
            str(source),
            quantize_mode="int8",
            calibration_method=method,
            calibration_data=dict(feeds),
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",
            output_path=str(target),
        )
        return onnx.load(target)


def in_fp32(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes that write FP32, other than casts."""
    known = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*known.value_info, *known.output)}
    written = [node for node in model.graph.node if node.op_type != "Cast"]
    return [node.name for node in written if types.get(node.output[0]) == onnx.TensorProto.FLOAT]


def quantized_tensors(model: onnx.ModelProto) -> list[str]:
    """Names of the tensors that are rounded to 8 bits."""
    return sorted(node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear")


def _tool(title: str, module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        reason = str(error).splitlines()[0]
        raise CourseError(f"ModelOpt's {title} cannot be imported ({reason}): {NEEDS}") from error
