"""Wrong answers to the exercises of lecture 6."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper


def _affine(low, high, steps=255, extend=True, first=0, code=round):
    if extend:
        low, high = min(low, 0), max(high, 0)
    scale = (high - low) / steps
    return scale, code(-low / scale) + first


def _weight(weight, axes=(1, 2, 3), steps=127, code=np.rint, kind=np.int8, zero=True):
    largest = np.abs(weight).max(axes, keepdims=True)
    scales = largest / steps
    if zero:
        scales = np.where(largest > 0, scales, 1.0)
    return code(weight / scales).astype(kind), scales.ravel()


def _percentile(counts, width, percent, edge=1.0, reached=np.greater_equal):
    return (reached(counts.cumsum(), percent / 100 * counts.sum()).argmax() + edge) * width


def _pair(model, tensor, scale, readers=99, kind=np.int8, last=False, itself=False, back=True, own_scale=1.0):
    graph, result = model.graph, "back" if back else "codes"

    def rewire():
        found = [node for node in graph.node if tensor in node.input][:readers]
        for node in found:
            node.input[:] = [result if name == tensor else name for name in node.input]

    if not itself:
        rewire()
    values = {"scale": np.array(scale, np.float32), "zero": np.array(0, kind), "other": np.array(scale * own_scale, np.float32)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    at = len(graph.node) if last else next(i for i, node in enumerate(graph.node) if tensor in node.output) + 1
    graph.node.insert(at, helper.make_node("QuantizeLinear", [tensor, "scale", "zero"], ["codes"]))
    if back:
        graph.node.insert(at + 1, helper.make_node("DequantizeLinear", ["codes", "other", "zero"], ["back"]))
    if itself:
        rewire()
    return model


MISTAKES = {
    "6.1": {
        "256 steps": lambda low, high: _affine(low, high, steps=256),
        "symmetric": lambda low, high: (max(abs(low), abs(high)) / 127, 0),
        "signed": lambda low, high: _affine(low, high, first=-128),
        "rounded down": lambda low, high: _affine(low, high, code=int),
        "0 not in the range": lambda low, high: _affine(low, high, extend=False),
    },
    "6.2": {
        "per tensor": lambda weight: _weight(weight, axes=(0, 1, 2, 3)),
        "per input": lambda weight: _weight(weight, axes=(0, 2, 3)),
        "128": lambda weight: _weight(weight, steps=128),
        "cut off": lambda weight: _weight(weight, code=np.trunc),
        "not converted": lambda weight: _weight(weight, kind=np.float32),
        "an empty filter": lambda weight: _weight(weight, zero=False),
        "codes only": lambda weight: _weight(weight)[0],
    },
    "6.3": {
        "lower edge": lambda counts, width, percent: _percentile(counts, width, percent, edge=0),
        "middle": lambda counts, width, percent: _percentile(counts, width, percent, edge=0.5),
        "more than": lambda counts, width, percent: _percentile(counts, width, percent, reached=np.greater),
        "share of the range": lambda counts, width, percent: percent / 100 * len(counts) * width,
        "no width": lambda counts, width, percent: _percentile(counts, 1.0, percent),
    },
    "6.4": {
        "nothing": lambda model, tensor, scale: model,
        "no way back": lambda *given: _pair(*given, back=False),
        "readers unchanged": lambda *given: _pair(*given, readers=0),
        "one reader": lambda *given: _pair(*given, readers=1),
        "unsigned": lambda *given: _pair(*given, kind=np.uint8),
        "at the end": lambda *given: _pair(*given, last=True),
        "reads itself": lambda *given: _pair(*given, itself=True),
        "another scale": lambda *given: _pair(*given, own_scale=2.0),
    },
}
