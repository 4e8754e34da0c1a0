"""The values that a converter's TensorRT network computes, by numpy: a test of converters that needs neither a GPU nor a build.

The lowered graph of a compiled module does not run converters, so a wrong converter is not seen in its answers. `converted` converts a
small module with the released interpreter and computes each layer of the network in numpy. It knows the layers that converters of tensor
operators usually write. For any other layer it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.errors import EngineError

_ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "SUM": np.add, "SUB": np.subtract, "PROD": np.multiply, "DIV": np.divide, "MAX": np.maximum, "MIN": np.minimum,
    "POW": np.power, "FLOOR_DIV": np.floor_divide, "EQUAL": np.equal, "GREATER": np.greater, "LESS": np.less,
    "AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor,
}  # fmt: skip
_UNARY: Mapping[str, Callable[..., Any]] = {
    "EXP": np.exp, "LOG": np.log, "SQRT": np.sqrt, "ABS": np.abs, "NEG": np.negative, "RECIP": np.reciprocal, "SIN": np.sin,
    "COS": np.cos, "TAN": np.tan, "FLOOR": np.floor, "CEIL": np.ceil, "ROUND": np.round, "SIGN": np.sign, "NOT": np.logical_not,
    "ISNAN": np.isnan, "ISINF": np.isinf,
}  # fmt: skip
_ACTIVATION: Mapping[str, Callable[..., Any]] = {
    "RELU": lambda x: np.maximum(x, 0),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
}
_REDUCE: Mapping[str, Callable[..., Any]] = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean}
_CLASSES = {  # of a layer's type, where the class has another name
    "TOPK": "ITopKLayer", "ELEMENTWISE": "IElementWiseLayer", "CONCATENATION": "IConcatenationLayer",
    "MATRIX_MULTIPLY": "IMatrixMultiplyLayer", "SOFTMAX": "ISoftMaxLayer",
}  # fmt: skip


def converted(exported: Any, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The outputs of an exported program's network for these inputs, in a process that has loaded Torch-TensorRT.

    Args:
        exported: with inputs of fixed shapes. Each of its operators must have a converter.

    Raises:
        EngineError: a layer is not known here.
    """
    import torch
    import torch_tensorrt
    from torch_tensorrt.dynamo._settings import CompilationSettings
    from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter

    settings = CompilationSettings()
    lowering = torch_tensorrt.dynamo.lowering
    lowered = lowering.post_lowering(exported.run_decompositions(lowering.get_decompositions()).module(), settings)
    specs = [torch_tensorrt.Input(shape=tuple(one.shape), dtype=one.dtype) for one in inputs]
    interpreter = TRTInterpreter(lowered, specs, compilation_settings=settings)
    interpreter._construct_trt_network_def()
    with torch.no_grad():
        return outputs(interpreter.ctx.net, [one.numpy() for one in inputs])


def outputs(network: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of a network for these inputs, in the network's order.

    Raises:
        EngineError: a layer is not known here.
    """
    values = {network.get_input(place).name: np.asarray(one) for place, one in enumerate(inputs)}
    for place in range(network.num_layers):
        layer = network.get_layer(place)
        needs = [layer.get_input(index) for index in range(layer.num_inputs)]
        results = _results(layer, [values[need.name] for need in needs if need is not None])
        for index in range(layer.num_outputs):
            values[layer.get_output(index).name] = results[index]
    return [values[network.get_output(place).name] for place in range(network.num_outputs)]


def _results(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    kind = layer.type.name
    import tensorrt as trt

    layer.__class__ = getattr(trt, _CLASSES.get(kind, f"I{kind.title()}Layer"), layer.__class__)
    with np.errstate(all="ignore"):
        compute = _LAYERS.get(kind)
        if compute is None:
            raise EngineError(f"the converter writes a layer {kind}, which the course cannot compute: use another layer")
        return compute(layer, given)


def _table(functions: Mapping[str, Callable[..., Any]]) -> Callable[[Any, Sequence[np.ndarray]], Sequence[np.ndarray]]:
    def compute(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        name = (layer.type if layer.__class__.__name__ == "IActivationLayer" else layer.op).name
        if name not in functions:
            raise EngineError(f"the converter writes the operation {name}, which the course cannot compute: use another one")
        return [functions[name](*given)]

    return compute


def _axes(mask: int, rank: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(rank) if mask >> axis & 1)


def _top(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    x, (axis,) = given[0], _axes(layer.axes, given[0].ndim)
    count = int(given[1].item()) if len(given) > 1 else layer.k
    ordered = np.argsort(x if layer.op.name == "MIN" else -x, axis=axis, kind="stable")
    where = np.take(ordered, np.arange(count), axis=axis)
    return [np.take_along_axis(x, where, axis), where.astype(np.int32)]


def _shuffled(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    x = given[0].transpose(tuple(layer.first_transpose)[: given[0].ndim])
    wanted = given[1] if len(given) > 1 else layer.reshape_dims
    if wanted is not None and len(wanted) >= 0:  # TensorRT's way to say "unchanged" is a negative length
        shape = [int(size) for size in wanted]
        x = x.reshape([x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)])
    return [x.transpose(tuple(layer.second_transpose)[: x.ndim])]


def _sliced(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    parts = [layer.start, layer.shape, layer.stride]
    for place, one in enumerate(given[1:4]):
        parts[place] = one.reshape(-1)
    taken = [start + step * np.arange(size) for start, size, step in zip(*(map(int, part) for part in parts), strict=True)]
    if layer.mode.name == "WRAP":
        taken = [places % size for places, size in zip(taken, given[0].shape, strict=True)]
    return [given[0][np.ix_(*taken)]]


def _matrix_product(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    turned = [
        one.swapaxes(-1, -2) if op.name == "TRANSPOSE" else one for one, op in zip(given, (layer.op0, layer.op1), strict=True)
    ]
    return [turned[0] @ turned[1]]


def _reduced(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    return [_REDUCE[layer.op.name](given[0], axis=_axes(layer.axes, given[0].ndim), keepdims=layer.keep_dims)]


def _cumulated(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    if layer.exclusive or layer.reverse:
        raise EngineError("the course cannot compute an exclusive or reversed cumulative layer: use the usual one")
    return [np.cumsum(given[0], axis=int(given[1].item()))]


def _softmax(layer: Any, given: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    (axis,) = _axes(layer.axes, given[0].ndim)
    raised = np.exp(given[0] - given[0].max(axis, keepdims=True))
    return [raised / raised.sum(axis, keepdims=True)]


_LAYERS: Mapping[str, Callable[[Any, Sequence[np.ndarray]], Sequence[np.ndarray]]] = {
    "ACTIVATION": _table(_ACTIVATION),
    "CAST": lambda layer, given: [given[0].astype(_dtype(layer.to_type))],
    "CONCATENATION": lambda layer, given: [np.concatenate(given, axis=layer.axis)],
    "CONSTANT": lambda layer, given: [np.asarray(layer.weights, _dtype(layer.weights.dtype) if hasattr(layer.weights, "dtype") else None)
                                      .reshape(tuple(layer.shape))],
    "CUMULATIVE": _cumulated,
    "ELEMENTWISE": _table(_ELEMENTWISE),
    "GATHER": lambda layer, given: [np.take(given[0], given[1].astype(np.int64), axis=layer.axis)],
    "IDENTITY": lambda layer, given: [given[0]],
    "MATRIX_MULTIPLY": _matrix_product,
    "REDUCE": _reduced,
    "SELECT": lambda layer, given: [np.where(*given)],
    "SHAPE": lambda layer, given: [np.array(given[0].shape, np.int64)],
    "SHUFFLE": _shuffled,
    "SLICE": _sliced,
    "SOFTMAX": _softmax,
    "SQUEEZE": lambda layer, given: [np.squeeze(given[0], tuple(int(axis) for axis in given[1].reshape(-1)))],
    "TOPK": _top,
    "UNARY": _table(_UNARY),
    "UNSQUEEZE": lambda layer, given: [np.expand_dims(given[0], tuple(int(axis) for axis in given[1].reshape(-1)))],
}  # fmt: skip


def _dtype(kind: Any) -> Any:
    """TensorRT's or numpy's name of a type, for numpy."""
    import tensorrt as trt

    return trt.nptype(kind) if isinstance(kind, trt.DataType) else kind
