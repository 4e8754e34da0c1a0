"""Wrong answers to the exercises of lecture 2."""

from __future__ import annotations

from collections import Counter

import tensorrt_rtx as trt

log = trt.Logger(trt.Logger.INTERNAL_ERROR)
builder = trt.Builder(log)
strongly_typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


def _errors(onnx_bytes, read, most=99):
    network = builder.create_network(strongly_typed)
    parser = trt.OnnxParser(network, log)
    parser.parse(onnx_bytes)
    return [read(parser.get_error(i)) for i in range(parser.num_errors)][:most]


def _parsed(onnx_bytes):
    network = builder.create_network(strongly_typed)
    return trt.OnnxParser(network, log).parse(onnx_bytes)


def _ranges(shapes, opt):
    sizes = list(zip(*shapes, strict=True))
    lowest, highest = tuple(map(min, sizes)), tuple(map(max, sizes))
    return {"min": lowest, "opt": opt(shapes, highest), "max": highest}


def _as_words(shapes):
    return {"min": min(shapes), "opt": Counter(shapes).most_common(1)[0][0], "max": max(shapes)}


def _build(onnx_bytes, name, shapes, target="SM89", parse=True, result=bytes):
    network = builder.create_network(strongly_typed)
    parser = trt.OnnxParser(network, log)
    if parse:
        parser.parse(onnx_bytes)
    config = builder.create_builder_config()
    if target:
        config.num_compute_capabilities = 1
        config.set_compute_capability(getattr(trt.ComputeCapability, target), 0)
    if shapes:
        profile = builder.create_optimization_profile()
        profile.set_shape(name, *shapes)
        config.add_optimization_profile(profile)
    return result(builder.build_serialized_network(network, config))


MISTAKES = {
    "2.1": {
        "a truth value": _parsed,
        "the first error": lambda data: _errors(data, lambda error: (error.node_operator(), error.node_name()), most=1),
        "the text": lambda data: _errors(data, lambda error: (error.node_operator(), error.desc())),
        "the other order": lambda data: _errors(data, lambda error: (error.node_name(), error.node_operator())),
        "a number": lambda data: len(_errors(data, str)),
    },
    "2.2": {
        "tuples compared": _as_words,
        "opt is max": lambda shapes: _ranges(shapes, lambda shapes, highest: highest),
        "opt is the first": lambda shapes: _ranges(shapes, lambda shapes, highest: shapes[0]),
        "opt by dimension": lambda shapes: _ranges(
            shapes, lambda shapes, _: tuple(Counter(sizes).most_common(1)[0][0] for sizes in zip(*shapes, strict=True))
        ),
    },
    "2.3": {
        "no profile": lambda data, name, low, best, high: _build(data, name, None),
        "no target": lambda data, name, low, best, high: _build(data, name, (low, best, high), target=""),
        "the builder's memory": lambda data, name, low, best, high: _build(data, name, (low, best, high), result=lambda it: it),
        "max is opt": lambda data, name, low, best, high: _build(data, name, (low, best, best)),
        "min is opt": lambda data, name, low, best, high: _build(data, name, (best, best, high)),
        "fixed numbers": lambda data, name, low, best, high: _build(data, name, ((1, 4), (8, 4), (32, 4))),
        "the model itself": lambda data, name, low, best, high: data,
    },
}
