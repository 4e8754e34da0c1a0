"""Imports of modules that older TensorRT versions removed."""

from __future__ import annotations

from course_lib.migration.analysis.guards import version_number
from course_lib.migration.findings import Severity, Verdict

_ONNX = "export the model to ONNX (torch.onnx.export, tf2onnx) and read it with trt.OnnxParser"
# module, severity, since, what to use, lecture
MODULES: tuple[tuple[str, Severity, str, str, int], ...] = (
    ("uff", "removed", "10.0", _ONNX, 2),
    ("graphsurgeon", "removed", "10.0", "onnx_graphsurgeon, on the ONNX model", 2),
    ("tensorrt.parsers", "removed", "5.0", _ONNX, 2),
    ("tensorrt.infer", "removed", "5.0", "trt.Logger, trt.Builder, trt.Runtime", 2),
    ("tensorrt.utils", "removed", "5.0", "trt.Builder and trt.OnnxParser", 2),
    ("tensorrt.lite", "removed", "5.0", "trt.Runtime and an execution context", 10),
    ("trtorch", "removed", "Torch-TensorRT 1.0", "import torch_tensorrt", 13),
    ("torch_tensorrt.ptq", "removed", "", "quantize the module with modelopt", 13),
    ("torch_tensorrt.ts.ptq", "removed", "", "quantize the module with modelopt", 13),
    ("pytorch_quantization", "deprecated", "", "modelopt.torch.quantization, NVIDIA's successor", 7),
)  # fmt: skip


def judge_import(name: str, target: str) -> list[Verdict]:
    """The verdict on a module by its full name, such as ``"uff.model"``; none if nothing is wrong with it."""
    for module, severity, since, use, lecture in MODULES:
        if name == module or name.startswith(f"{module}."):
            numbered = since[:1].isdigit()
            if numbered and not target.startswith("rtx") and version_number(target) < version_number(since):
                return []
            return [Verdict(f"import {module}", severity, since, use, lecture)]
    return []
