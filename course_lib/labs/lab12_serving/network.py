"""The network that lab 12 serves: a scorer of payments. Reading its weights takes longer than its arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

FEATURES, SCORES = 256, 8
INPUT, OUTPUT = "features", "scores"
MOST_ROWS = 16  # rows of one inference, as the recipe declares
# For one row nearly all of the time goes into reading the weights, so eight rows together cost little more than one.
WIDE = 2048


@dataclass(frozen=True)
class Scorer:
    """Three layers of random weights. The scores have no meaning, but a server must return them correctly.

    Attributes:
        seed: seed of the weights; another seed is a retrained network.
        hidden: width of the two hidden layers.
    """

    seed: int
    hidden: int

    def weights(self) -> list[np.ndarray]:
        """Float32 matrices ``(inputs, outputs)`` of each layer."""
        rng = np.random.default_rng(self.seed)
        sizes = (FEATURES, self.hidden, self.hidden, SCORES)
        return [rng.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32) for rows, columns in pairwise(sizes)]

    def scores(self, features: np.ndarray) -> np.ndarray:
        """The correct scores, float64 ``(n, SCORES)`` for ``(n, FEATURES)``, computed by numpy and not by an engine."""
        *hidden, last = self.weights()
        values = features.astype(np.float64)
        for matrix in hidden:
            values = np.maximum(values @ matrix, 0)
        return np.asarray(values @ last)

    def onnx(self) -> bytes:
        """The network as an ONNX file of operator set 17 with a dynamic batch."""
        from onnx import TensorProto, helper, numpy_helper

        tensors, nodes, value = [], [], INPUT
        matrices = self.weights()
        for index, matrix in enumerate(matrices):
            last = index == len(matrices) - 1
            tensors.append(numpy_helper.from_array(matrix, f"weight{index}"))
            product = OUTPUT if last else f"product{index}"
            nodes.append(helper.make_node("MatMul", [value, f"weight{index}"], [product], name=f"linear{index}"))
            if not last:
                value = f"hidden{index}"
                nodes.append(helper.make_node("Relu", [product], [value], name=f"relu{index}"))
        inputs = [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["n", FEATURES])]
        outputs = [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["n", SCORES])]
        graph = helper.make_graph(nodes, "scorer", inputs, outputs, tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(model.SerializeToString())
