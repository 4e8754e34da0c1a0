"""Solutions of the exercises in lecture 2. In the lecture, `trt`, `builder`, `log` and `strongly_typed` are those of its cells."""

from __future__ import annotations

from collections import Counter

import tensorrt_rtx as trt

log = trt.Logger(trt.Logger.INTERNAL_ERROR)
builder = trt.Builder(log)
strongly_typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)

Shape = tuple[int, ...]


def rejected_nodes(onnx_bytes: bytes) -> list[tuple[str, str]]:
    """2.1: the parser keeps a list of errors."""
    network = builder.create_network(strongly_typed)
    parser = trt.OnnxParser(network, log)
    parser.parse(onnx_bytes)
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    return [(error.node_operator(), error.node_name()) for error in errors]


def profile_for(shapes: list[Shape]) -> dict[str, Shape]:
    """2.2: the smallest and largest size of each dimension, and the most frequent shape."""
    sizes = list(zip(*shapes, strict=True))
    return {
        "min": tuple(map(min, sizes)),
        "opt": Counter(shapes).most_common(1)[0][0],
        "max": tuple(map(max, sizes)),
    }


def build_plan(onnx_bytes: bytes, name: str, smallest: Shape, best: Shape, largest: Shape) -> bytes:
    """2.3: what `course_lib.engines.build` does, without its messages."""
    network = builder.create_network(strongly_typed)
    parser = trt.OnnxParser(network, log)
    if not parser.parse(onnx_bytes):
        raise ValueError("the parser rejected the graph")
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    profile = builder.create_optimization_profile()
    profile.set_shape(name, smallest, best, largest)
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ValueError("the build failed: read the log")
    return bytes(plan)
