"""Exercises of lecture 6: scale and zero point, a weight per channel, a percentile, and a Q/DQ pair."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, NotYet

# Filters of very different size, the last one empty. The shape is (outputs, inputs, height, width).
_WEIGHT = np.array([1.27, -0.5, 0.0254, 0.0127, -0.01, 0.005, 0.0, 0.0, 0.0]).reshape(3, 3, 1, 1)
_CODES = np.array([127, -50, 3, 127, -100, 50, 0, 0, 0]).reshape(3, 3, 1, 1)
_SCALES = np.array([0.01, 0.0001, 1.0])


def _examine_weight(called: Answer) -> None:
    weight = _WEIGHT.astype(np.float32)
    weight.flags.writeable = False
    found = called(weight)
    if not isinstance(found, tuple) or len(found) != 2:
        raise NotYet(f"`quantize_weight` returned {shown(found)}, expected two arrays. End with `return codes, scales`.")
    codes, scales = (np.asarray(part) for part in found)
    if scales.size != 3:
        raise NotYet(f"for a weight of shape (3, 3, 1, 1), found {scales.size} scales, expected 3. {_scales_hint(scales)}")
    scales = scales.reshape(-1)
    if not np.isfinite(scales).all() or scales[2] == 0 or not np.isfinite(codes.astype(np.float64)).all():
        raise NotYet(f"found the scales {shown(scales)}. The last filter holds only zeros: give it the scale 1.")
    if not _near(scales, _SCALES):
        raise NotYet(f"found the scales {shown(scales)}, expected {shown(_SCALES)}. {_scales_hint(scales)}")
    if codes.dtype != np.int8:
        raise NotYet(f"found codes of the type {codes.dtype}, expected int8. Convert them last: `.astype(np.int8)`.")
    if codes.shape != weight.shape:
        raise NotYet(
            f"found codes of shape {codes.shape}, expected {weight.shape}. Divide by scales of shape (outputs, 1, 1, 1)."
        )
    if not same(codes, _CODES):
        raise NotYet(f"found the codes {shown(codes.ravel()[:6])}, expected {shown(_CODES.ravel()[:6])}. {_codes_hint(codes)}")


def _near(scales: np.ndarray, expected: np.ndarray) -> bool:
    return scales.shape == expected.shape and bool(np.allclose(scales, expected, rtol=1e-4, atol=0))


def _scales_hint(scales: np.ndarray) -> str:
    if scales.size == 1:
        return "One scale for the whole weight leaves the second filter with two steps. Take the maximum of each filter."
    if _near(scales, np.abs(_WEIGHT).max((0, 2, 3)) / 127):
        return "You took the maximum over the outputs. A filter is `weight[i]`: reduce the axes 1, 2 and 3."
    if _near(scales[:2], _SCALES[:2] * 127 / 128):
        return "Divide by 127, not by 128: the code 128 does not exist."
    if _near(scales, 1 / _SCALES):
        return "Those are the inverse scales. A code times its scale is the weight."
    return "The scale of a filter is its largest magnitude divided by 127."


def _codes_hint(codes: np.ndarray) -> str:
    if codes.ravel()[2] == 2:  # 2.54
        return "Your codes are truncated, because a conversion to int8 does not round. Use `np.rint` before the conversion."
    return "Round the weight divided by the scale of its filter."


# Two nodes read `a`.
_GRAPH = "g (float[4] x) => (float[4] y) { a = Relu(x)  b = Neg(a)  c = Abs(a)  y = Sub(c, b) }"


def _examine_pair(called: Answer) -> None:
    from onnx import ModelProto, TensorProto, checker, parser
    from onnx.reference import ReferenceEvaluator

    model = called(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {_GRAPH}'), "a", 0.5)
    if not isinstance(model, ModelProto):
        raise NotYet(f"`add_pair` returned {shown(model)}, expected the changed model. End with `return model`.")
    nodes = {node.op_type: node for node in model.graph.node}
    for operator, hint in (
        ("QuantizeLinear", "It turns the tensor into codes."),
        ("DequantizeLinear", "Without it, the readers of the tensor get codes."),
    ):
        if operator not in nodes:
            raise NotYet(f"the graph has the operators {sorted(nodes)}, expected {operator} as well. {hint}")
    quantize, dequantize = nodes["QuantizeLinear"], nodes["DequantizeLinear"]
    if quantize.input[0] != "a":
        raise NotYet(
            f"QuantizeLinear reads `{quantize.input[0]}`, expected `a`. Change the readers of `a` before you add the pair."
        )
    readers = [node.op_type for node in model.graph.node if "a" in node.input and node.op_type != "QuantizeLinear"]
    if readers:
        hint = (
            "Let every node that reads `a` read the result of DequantizeLinear."
            if len(readers) > 1
            else "The tensor has two readers."
        )
        raise NotYet(f"`a` is still read by {' and '.join(readers)}, so the pair has no effect there. {hint}")
    kinds = {constant.name: constant.data_type for constant in model.graph.initializer}
    zeros = [node.input[2] if len(node.input) > 2 else "" for node in (quantize, dequantize)]
    if any(kinds.get(name) != TensorProto.INT8 for name in zeros):
        raise NotYet("the codes are not INT8. The zero point sets their type, which is UINT8 without one: store an `np.int8`.")
    try:
        checker.check_model(model, full_check=True)
    except Exception as error:
        order = "sorted" in str(error)
        hint = "Insert the pair directly after the node that computes `a`." if order else "Compare the inputs of both nodes."
        raise NotYet(f"`onnx.checker` rejects the graph: {' '.join(str(error).split())[:80]}. {hint}") from error
    x = np.array([-1.0, 0.3, 0.76, 100.0], np.float32)
    (found,) = ReferenceEvaluator(model).run(None, {"x": x})  # 2 a; a in steps of 0.5, up to 63.5
    if not same(found, [0.0, 1.0, 2.0, 127.0]):
        raise NotYet(
            f"for a scale of 0.5 the graph computes {shown(found)}, expected [0, 1, 2, 127]. Use one scale for both nodes."
        )


_COUNTS = np.array([6, 2, 0, 1, 0, 1])

EXAMINATIONS = {"6.2": _examine_weight, "6.4": _examine_pair}
ARGUMENTS = {
    "6.3": (
        (_COUNTS, 1.0, 80),
        (_COUNTS, 0.5, 90),
        (np.array([3, 1, 0, 0]), 1.0, 100),
    )
}
