"""Wrong answers to the exercises of lecture 9."""

from __future__ import annotations

import numpy as np
from onnx import helper


def _rotated(x, position, interleaved=False, exponent=-2.0, sign=1, in_turn=False):
    size = len(x)
    pair = np.arange(size // 2)
    angle = position * 10000.0 ** (exponent * pair / size)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = (x[::2], x[1::2]) if interleaved else (x[: size // 2], x[size // 2 :])
    y_a = a * cos - sign * b * sin
    y_b = b * cos + sign * (y_a if in_turn else a) * sin
    return np.stack([y_a, y_b], axis=1).ravel() if interleaved else np.concatenate([y_a, y_b])


def _element(thread, sequence, heads, head_size, stride=None, second=None, row=None):
    half = head_size // 2
    whole, pair = divmod(thread, half)
    a = whole * (stride or head_size) + pair
    return a, a + (second or half), whole // heads % sequence if row is None else row(whole, sequence, heads)


def _load(addresses, head_size, each, row=None, number=lambda each: 16 // each, checked=None):
    row = head_size // 2 * each if row is None else row
    return number(each) if all(start % 16 == 0 for start in [*addresses[:checked], row]) else 1


def _supports(types=("float32", "float16", "bfloat16"), tables=(1, 2), table="float32", y=True, later=False, linear=True):
    def supports(pos, tensors):
        if later and any(layout != "LINEAR" for _, layout in tensors):
            return False
        kind, layout = tensors[pos]
        if linear and layout != "LINEAR":
            return False
        if pos in (1, 2):
            return pos not in tables or kind == (table or tensors[0][0])
        return kind in types and (pos == 0 or not y or kind == tensors[0][0])

    return supports


def _node(kind="ScaledAdd", inputs=("x", "r"), domain="course", result=lambda node: node, **other):
    def plugin_node(scale):
        attributes = {"plugin_version": "1", "plugin_namespace": "course", "scale": float(scale), **other}
        attributes = {name: value for name, value in attributes.items() if value is not None}
        return result(helper.make_node(kind, list(inputs), ["y"], domain=domain, **attributes))

    return plugin_node


MISTAKES = {
    "9.1": {
        "interleaved": lambda x, position: _rotated(x, position, interleaved=True),
        "half the exponent": lambda x, position: _rotated(x, position, exponent=-1.0),
        "twice the exponent": lambda x, position: _rotated(x, position, exponent=-4.0),
        "the other direction": lambda x, position: _rotated(x, position, sign=-1),
        "in place": lambda x, position: _rotated(x, position, in_turn=True),
    },
    "9.2": {
        "bytes": lambda first, size: len(first) * size // 32,
        "for each thread": lambda first, size: len(first),
        "one too far": lambda first, size: len({byte // 32 for one in first for byte in (one, one + size)}),
        "from first to last": lambda first, size: (max(first) + size - 1) // 32 - min(first) // 32 + 1,
        "first bytes only": lambda first, size: len({one // 32 for one in first}),
    },
    "9.3": {
        "no heads": lambda *given: _element(*given, row=lambda whole, sequence, heads: whole),
        "stride of a half": lambda *given: _element(*given, stride=given[3] // 2),
        "next to it": lambda *given: _element(*given, second=1),
        "a whole head": lambda *given: _element(*given, second=given[3]),
        "position first": lambda *given: _element(*given, row=lambda whole, sequence, heads: whole % sequence),
        "one sample": lambda *given: _element(*given, row=lambda whole, sequence, heads: whole // heads),
    },
    "9.4": {
        "bytes": lambda *given: _load(*given, number=lambda each: 16),
        "always 8": lambda *given: _load(*given, number=lambda each: 8),
        "a whole head": lambda *given: _load(*given, row=given[1] * given[2]),
        "the first address": lambda *given: _load(*given, checked=1),
        "never": lambda *given: 1,
    },
    "9.5": {
        "tables like x": _supports(table=None),
        "all tensors": _supports(later=True),
        "any type": _supports(types=("float32", "float16", "bfloat16", "int8")),
        "no tables": _supports(tables=()),
        "one table": _supports(tables=(1,)),
        "y alone": _supports(y=False),
        "no layout": _supports(linear=False),
        "two types": _supports(types=("float32", "float16")),
    },
    "9.6": {
        "no domain": _node(domain=""),
        "the order of the inputs": _node(inputs=("r", "x")),
        "no version": _node(plugin_version=None),
        "no namespace": _node(plugin_namespace=None),
        "an integer": _node(scale=1),
        "always 0.5": _node(scale=0.5),
        "the name": _node(result=lambda node: node.op_type),
    },
}
