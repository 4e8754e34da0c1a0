"""Nodes of an ONNX graph that is written by hand: the operators that all forms of the language model share."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn


class NodeWriter:
    """Collects nodes and weights. Each method adds the nodes of one part and returns the name of its result.

    Args:
        dtype: ``"fp32"`` or ``"fp16"``, of weights and arithmetic.
    """

    def __init__(self, dtype: str) -> None:
        self.type = TensorProto.FLOAT16 if dtype == "fp16" else TensorProto.FLOAT
        self.numpy_type = np.float16 if dtype == "fp16" else np.float32
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def norm(self, x: str, norm: nn.Module, path: str) -> str:
        """A layer norm; `path` is the module's name."""
        assert isinstance(norm, nn.LayerNorm)
        scale, bias = self.weight(f"{path}.weight", norm.weight), self.weight(f"{path}.bias", norm.bias)
        return self.add("LayerNormalization", x, scale, bias, name=f"{_slashed(path)}/LayerNormalization", epsilon=norm.eps)

    def linear(self, x: str, layer: nn.Linear, path: str) -> str:
        """A product with a layer's weights; `path` is the module's name."""
        return self.add("MatMul", x, self.weight(f"{path}.weight", layer.weight.T), name=f"{_slashed(path)}/MatMul")

    def split(
        self, x: str, sizes: tuple[int, int], name: str, *, axis: int = 1, results: tuple[str, str] | None = None
    ) -> tuple[str, str]:
        """Two parts of a tensor along an axis."""
        results = results or (f"{name}_output_0", f"{name}_output_1")
        split = self.constant("/split_" + "_".join(map(str, sizes)), list(sizes))
        self.nodes.append(helper.make_node("Split", [x, split], results, name=name, axis=axis))
        return results

    def add(self, operator: str, *inputs: str, name: str, result: str = "", **attributes: Any) -> str:
        """A node with one output."""
        result = result or f"{name}_output_0"
        self.nodes.append(helper.make_node(operator, inputs, [result], name=name, **attributes))
        return result

    def weight(self, name: str, weight: Tensor) -> str:
        """An initializer in the graph's precision."""
        return self.constant(name, weight.detach().cpu().numpy().astype(self.numpy_type))

    def constant(self, name: str, value: Any) -> str:
        """An initializer, int64 unless it is an array or a scalar of another type; equal names mean equal values."""
        if all(known.name != name for known in self.weights):
            self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name


def _slashed(path: str) -> str:
    return "/" + path.replace(".", "/")
