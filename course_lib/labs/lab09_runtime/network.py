"""The scorer of lab 09: features in, scores out, and its engine with a profile for small and one for large batches."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

VERSION = "10.16"  # of TensorRT, for the stand-in
COLUMNS, SCORES = 128, 32
INPUT, OUTPUT = "features", "scores"
PROFILES = ((1, 4, 8), (9, 32, 64))  # smallest, most common and largest number of rows
MOST_ROWS = PROFILES[-1][-1]
_HIDDEN = 64


@cache
def model() -> bytes:
    """A serialized ONNX model: two products and a ReLU, float32 ``features (N, 128)`` to ``scores (N, 32)``."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(12)
    sizes = {"first": (COLUMNS, _HIDDEN), "second": (_HIDDEN, SCORES)}
    weights = {name: (rng.standard_normal(size) / np.sqrt(size[0])).astype(np.float32) for name, size in sizes.items()}
    nodes = [
        helper.make_node("MatMul", [INPUT, "first"], ["product"], name="multiply"),
        helper.make_node("Relu", ["product"], ["hidden"], name="relu"),
        helper.make_node("MatMul", ["hidden", "second"], [OUTPUT], name="score"),
    ]
    features, scores = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", columns])
        for name, columns in ((INPUT, COLUMNS), (OUTPUT, SCORES))
    )
    tensors = [numpy_helper.from_array(weight, name) for name, weight in weights.items()]
    graph = helper.make_graph(nodes, "scorer", [features], [scores], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = made.SerializeToString()
    return data


def serialized_engine(trt: Any, onnx_model: bytes = b"") -> bytes:
    """The plan that a module `tensorrt` builds, a real one or a stand-in.

    It computes in FP32 and not in TF32, so that a loop's scores are those of ONNX Runtime. Several contexts can use one profile.

    Args:
        onnx_model: what `model` returned in an interpreter that has onnx; empty to call it here.

    Raises:
        RuntimeError: the builder or the parser rejected the network.
    """
    from course_lib.engines.backends.tensorrt.config import network_flags, restrict_tactic_sources, share_profiles

    logger = trt.Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(network_flags(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx_model or model()):
        raise RuntimeError(f"the parser rejected the scorer: {parser.get_error(0).desc()}")
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    restrict_tactic_sources(trt, config)
    share_profiles(trt, config)
    for rows in PROFILES:
        profile = builder.create_optimization_profile()
        profile.set_shape(INPUT, *((size, COLUMNS) for size in rows))
        config.add_optimization_profile(profile)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise RuntimeError("the builder rejected the scorer: its log says why")
    return bytes(serialized)


@cache
def plan() -> bytes:
    """The plan of the stand-in, which the grader gives to a serving loop."""
    from course_lib.standin import tensorrt_module

    return serialized_engine(tensorrt_module.make(VERSION))


def scores(features: np.ndarray) -> np.ndarray:
    """Float32 ``(n, 32)`` for float32 ``(n, 128)``, by ONNX Runtime on the CPU."""
    return _runner().run({INPUT: np.ascontiguousarray(features, np.float32)})[OUTPUT]


@cache
def _runner() -> Any:
    from course_lib.standin.onnx_model import OnnxModel

    return OnnxModel(model())
