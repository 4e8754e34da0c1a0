"""FP16 in TensorRT 8.6, where precision is permitted by flags and bound layer by layer, whatever types the graph has."""

from __future__ import annotations

from typing import Any

_PRODUCTS = {"CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY"}
_UNBOUND = {"CAST", "CONSTANT", "GATHER", "IDENTITY", "SHAPE"}  # they compute nothing, or their type is their own


def weakly_typed(trt: Any) -> bool:
    """Whether precision is permitted with builder flags (8.6) instead of being written in the graph."""
    return "STRONGLY_TYPED" not in trt.NetworkDefinitionCreationFlag.__members__


def demand_half(trt: Any, network: Any, config: Any) -> None:
    """Require FP16 instead of only permitting it. With the FP16 flag, 8.6 keeps FP32 where it was faster, without a report.

    It also ignores casts. In a graph of mixed types, layers that the author kept in FP32 are therefore bound to FP32, because they
    may overflow in FP16. Of the other layers, only those that multiply matrices are bound. The builder chooses for the cheap ones.
    Later versions take their types from the graph.
    """
    if weakly_typed(trt):
        _bind(trt, network, config)


def _bind(trt: Any, network: Any, config: Any) -> None:
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    written = written_types(trt, network)
    mixed = trt.float16 in written.values()
    for layer in _layers(network):
        dtype = written.get(layer.get_output(0).name)
        if mixed and dtype == trt.float32 and layer.type.name not in _UNBOUND:
            layer.precision = trt.float32
            layer.set_output_type(0, trt.float32)  # or the tensor between two such layers may be stored in FP16
        elif layer.type.name in _PRODUCTS:
            layer.precision = trt.float16


def written_types(trt: Any, network: Any) -> dict[str, Any]:
    """The floating-point type that the graph has for each tensor, by name. Constants, and what is computed from them alone, are left out.

    The tensors of a parsed network do not tell: 8.6.0 says FP32 for all, also behind a cast to FP16. The types are those of the
    inputs, and only a cast changes them, since ONNX gives all inputs of an operator one type.
    """
    floats = (trt.float16, trt.float32)
    inputs = (network.get_input(index) for index in range(network.num_inputs))
    written = {tensor.name: tensor.dtype for tensor in inputs if tensor.dtype in floats}
    for layer in _layers(network):  # in the order of execution
        given = [
            written[tensor.name]
            for tensor in map(layer.get_input, range(layer.num_inputs))
            if tensor and tensor.name in written
        ]
        dtype = _target(trt, layer) if layer.type.name == "CAST" else given[0] if given else None
        if dtype in floats:
            outputs = map(layer.get_output, range(layer.num_outputs))
            written |= {tensor.name: dtype for tensor in outputs if tensor.dtype in floats}
    return written


def _layers(network: Any) -> list[Any]:
    return [network.get_layer(index) for index in range(network.num_layers)]


def _target(trt: Any, layer: Any) -> Any:
    layer.__class__ = trt.ICastLayer  # `get_layer` returns the base class, which has no `to_type`
    return layer.to_type
