"""Products of an FP16 graph with inputs and weights in fewer bits, in the forms that TensorRT reads.

Sources: NVIDIA TensorRT documentation, "Working with Quantized Types" (placement, blocks, two-level scales) and the operators
DynamicQuantize and Dequantize; ONNX, DequantizeLinear (operator set 21 for blocks).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Kind = Literal["FP8", "INT4", "MXFP8", "NVFP4"]
_CODES = {
    "FP8": TensorProto.FLOAT8E4M3FN,
    "INT4": TensorProto.INT4,
    "MXFP8": TensorProto.FLOAT8E4M3FN,
    "NVFP4": TensorProto.FLOAT4E2M1,
}
_E4M3_MAX, _E2M1_MAX = 448.0, 6.0
_TRT = "trt"  # the domain of TensorRT's own operators


@dataclass(frozen=True)
class Stored:
    """A weight in few bits: ``codes * scales * whole``, where each scale serves one block.

    Attributes:
        kind: of the format.
        codes: ``(out, in)``, numbers of the format.
        scales: ``(out, in / block)``, or ``(1, 1)`` for one scale per tensor (FP8).
        whole: the second level of NVFP4's scales; 1 for the other formats.
    """

    kind: Kind
    codes: np.ndarray
    scales: np.ndarray
    whole: float = 1.0

    @property
    def block(self) -> int:
        """How many neighbors along the input share a scale."""
        return self.codes.shape[1] // self.scales.shape[1]

    def values(self) -> np.ndarray:
        """The weight that the codes stand for, float32 ``(out, in)``."""
        scales = np.repeat(self.scales, self.block, axis=1)
        return (self.codes * scales * self.whole).astype(np.float32)


def with_low_bits(
    model: onnx.ModelProto, weights: Mapping[str, Stored], inputs: Mapping[str, float] | None = None
) -> onnx.ModelProto:
    """A copy of an FP16 graph whose products read their weights, and with `inputs` their other input, in few bits.

    Args:
        model: its products are `MatMul` with a constant ``(in, out)``. It is not changed.
        weights: by the name of the constant. Blocks lie along the input.
        inputs: by the same names, the largest magnitude of the product's input. None: only weights are quantized. INT4 is for
            weights alone. MXFP8 ignores the magnitude, because its scales are computed at run time and need no range.

    Raises:
        ValueError: a constant that no product reads, or INT4 for an input.
    """
    model = copy.deepcopy(model)
    writer = _Writer()
    nodes: list[onnx.NodeProto] = []
    found: set[str] = set()
    for node in model.graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        if name in weights:
            found.add(name)
            stored = weights[name]
            if inputs is not None:
                node.input[0] = writer.quantize_input(node.input[0], f"{name}/input", stored.kind, inputs[name])
            node.input[1] = writer.dequantize_weight(name, stored)
        nodes += [*writer.take(), node]
    if missing := set(weights) - found:
        raise ValueError(f"no product reads the constant {min(missing)!r}")
    kept = [one for one in model.graph.initializer if one.name not in found]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend([*kept, *writer.constants])
    model.opset_import.append(helper.make_opsetid(_TRT, 1))
    return model


def one_product(weight: np.ndarray) -> onnx.ModelProto:
    """An FP16 graph of one product, ``x`` ``(64, in)`` to ``y`` ``(64, out)``, with the constant ``weight``.

    Args:
        weight: ``(out, in)``, as PyTorch has it. The graph stores it transposed.
    """
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [64, weight.shape[1]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [64, weight.shape[0]])
    constant = numpy_helper.from_array(np.ascontiguousarray(weight.T, np.float16), "weight")
    node = helper.make_node("MatMul", ["x", "weight"], ["y"], name="product")
    graph = helper.make_graph([node], "one_product", [x], [y], [constant])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


class _Writer:
    """Collects nodes and constants. Each method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def take(self) -> list[onnx.NodeProto]:
        """The nodes since the last call."""
        nodes, self.nodes = self.nodes, []
        return nodes

    def quantize_input(self, x: str, name: str, kind: Kind, amax: float) -> str:
        """Round an activation, and turn it back to FP16."""
        if kind == "FP8":
            scale = self._array(f"{name}/scale", np.float16(amax / _E4M3_MAX))
            zero = self._typed(f"{name}/zero", TensorProto.FLOAT8E4M3FN, np.zeros(()))
            codes = self._add("QuantizeLinear", x, scale, zero, name=f"{name}/quantize")
            return self._add("DequantizeLinear", codes, scale, name=f"{name}/dequantize")
        if kind == "NVFP4":
            whole = self._array(f"{name}/whole", np.float32(amax / (_E4M3_MAX * _E2M1_MAX)))
            codes, scales = self._pair(
                "TRT_FP4DynamicQuantize", x, whole, name=f"{name}/quantize", block_size=16, scale_type=TensorProto.FLOAT8E4M3FN
            )
            return self._two_levels(codes, scales, whole, name, axis=-1, block=16)
        if kind == "MXFP8":
            codes, scales = self._pair(
                "TRT_MXFP8DynamicQuantize", x, name=f"{name}/quantize", block_size=32, output_dtype=TensorProto.FLOAT8E4M3FN
            )
            return self._mx(codes, scales, name, axis=-1)
        raise ValueError(f"{kind} is for weights: an input needs FP8, MXFP8 or NVFP4")

    def dequantize_weight(self, name: str, stored: Stored) -> str:
        """A constant in the codes of its format, followed by what turns it to FP16 ``(in, out)``."""
        codes = self._typed(f"{name}/codes", _CODES[stored.kind], stored.codes.T)
        if stored.kind == "FP8":
            scale = self._array(f"{name}/scale", np.float16(stored.scales.item()))
            return self._add("DequantizeLinear", codes, scale, name=f"{name}/dequantize")
        if stored.kind == "INT4":
            scales = self._array(f"{name}/scales", stored.scales.T.astype(np.float16))
            return self._add("DequantizeLinear", codes, scales, name=f"{name}/dequantize", axis=0, block_size=stored.block)
        if stored.kind == "NVFP4":
            scales = self._typed(f"{name}/scales", TensorProto.FLOAT8E4M3FN, stored.scales.T)
            whole = self._array(f"{name}/whole", np.float32(stored.whole))
            return self._two_levels(codes, scales, whole, name, axis=0, block=stored.block)
        exponents = (np.log2(stored.scales.T) + 127).astype(np.uint8)
        return self._mx(codes, self._array(f"{name}/scales", exponents), name, axis=0)

    def _two_levels(self, codes: str, scales: str, whole: str, name: str, *, axis: int, block: int) -> str:
        """FP32 scales from their FP8 codes, FP32 values from these scales, and a cast for the FP16 product."""
        wide = self._add("DequantizeLinear", scales, whole, name=f"{name}/dequantize_scales")
        values = self._add("DequantizeLinear", codes, wide, name=f"{name}/dequantize", axis=axis, block_size=block)
        return self._add("Cast", values, name=f"{name}/cast", to=TensorProto.FLOAT16)

    def _mx(self, codes: str, scales: str, name: str, *, axis: int) -> str:
        return self._add(
            "TRT_MXFP8DequantizeLinear",
            codes,
            scales,
            name=f"{name}/dequantize",
            domain=_TRT,
            axis=axis,
            block_size=32,
            output_dtype=TensorProto.FLOAT16,
        )

    def _pair(self, operator: str, *inputs: str, name: str, **attributes: Any) -> tuple[str, str]:
        results = (f"{name}_codes", f"{name}_scales")
        self.nodes.append(helper.make_node(operator, inputs, results, name=name, domain=_TRT, axis=-1, **attributes))
        return results

    def _add(self, operator: str, *inputs: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [f"{name}_output"], name=name, **attributes))
        return f"{name}_output"

    def _array(self, name: str, array: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def _typed(self, name: str, dtype: int, values: np.ndarray) -> str:
        return self._array(name, values.astype(helper.tensor_dtype_to_np_dtype(dtype)))
