"""Quantization-aware training by hand, small enough to read: wrap each layer, train, unwrap, export.

This module does the same as ModelOpt in `course_lib.precision.qat`. The trained layers are the exported layers: norms are folded
into convolutions first, so the weights that training rounds are the weights of the engine.

Source: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference (2018).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from course_lib.errors import CourseError
from course_lib.precision.quantization.fake_quant import straight_through
from course_lib.precision.quantization.qdq import insert_qdq

if TYPE_CHECKING:
    import onnx
    from torch import Tensor, nn


def fold_norms(module: nn.Module) -> nn.Module:
    """A copy in which each BatchNorm has become part of the Conv before it, ready to train: equal in eval mode up to rounding.

    Args:
        module: traceable by ``torch.fx``; it is not changed.
    """
    from torch.fx.experimental.optimization import fuse

    folded: nn.Module = fuse(module.eval())
    return folded.requires_grad_(True)


def input_ranges(module: nn.Module, inputs: Tensor) -> dict[str, float]:
    """The largest magnitude that each Conv2d and Linear reads, by name: min-max calibration.

    Args:
        module: a float32 module.
        inputs: one batch for the module.

    Raises:
        CourseError: the module has no such layer, or a layer that this batch does not reach.
    """
    import torch

    layers = _layers(module)
    seen: dict[str, float] = {}

    def watch(name: str) -> Callable[..., None]:
        def keep(layer: nn.Module, read: tuple[Tensor, ...]) -> None:
            seen[name] = max(seen.get(name, 0.0), float(read[0].abs().max()))

        return keep

    with ExitStack() as hooks, torch.no_grad():
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_pre_hook(watch(name)).remove)
        module(inputs)
    if missing := layers.keys() - seen.keys():
        raise CourseError(f"the batch does not reach the layer {min(missing)!r}")
    return seen


def wrap(module: nn.Module, ranges: Mapping[str, float], *, weight_bits: int = 8, activation_bits: int = 8) -> nn.Module:
    """A copy that computes every Conv2d and Linear with a rounded input and a rounded weight, and learns through the rounding.

    Inputs have one fixed range per tensor. Weights have one range for each output channel, which follows the weight during training.

    Args:
        module: a float32 module; it is not changed.
        ranges: from `input_ranges`.
        weight_bits, activation_bits: bits of the integers, 2 to 16.

    Raises:
        CourseError: no range for a layer, or bits out of range when it runs.
    """
    wrapped = copy.deepcopy(module)
    for name, layer in _layers(wrapped).items():
        if name not in ranges:
            raise CourseError(f"no range for the input of layer {name!r}: take the ranges of this module with input_ranges")
        _replace(wrapped, name, _rounded_layer()(layer, ranges[name], weight_bits, activation_bits))
    return wrapped


def unwrap(module: nn.Module) -> nn.Module:
    """A copy without the rounding: the float network with the trained weights."""
    plain = copy.deepcopy(module)
    for name, layer in list(plain.named_modules()):
        if isinstance(layer, _rounded_layer()):
            _replace(plain, name, layer.layer)
    return plain


def export_wrapped(module: nn.Module, export: Callable[[nn.Module], onnx.ModelProto]) -> onnx.ModelProto:
    """The network of `wrap` as ONNX with INT8 Q/DQ pairs: the ranges that it was trained with, on both inputs of every layer.

    Residual additions do not get a pair, because training did not round them either.

    Args:
        module: from `wrap`, with 8 bits throughout, in eval mode.
        export: `course_lib.models.export_onnx`, or a function that also names nodes after modules.

    Raises:
        CourseError: another number of bits, or a module that was not wrapped.
    """
    rounded = {name: layer for name, layer in module.named_modules() if isinstance(layer, _rounded_layer())}
    if not rounded:
        raise CourseError("the network has no rounded layers: make it with wrap first")
    if other := [name for name, layer in rounded.items() if layer.bits != (8, 8)]:
        raise CourseError(f"only 8 bits become INT8 kernels, layer {other[0]!r} has others: wrap with 8 bits to export")
    plain = export(unwrap(module))
    nodes = {node.name.strip("/").rpartition("/")[0].replace("/", "."): node for node in plain.graph.node}
    ranges = {nodes[name].input[0]: layer.amax for name, layer in rounded.items()}
    return insert_qdq(plain, ranges, exclude=[node.name for node in plain.graph.node if node.op_type == "Add"])


@cache
def _rounded_layer() -> Any:
    """The class `RoundedLayer`, created on first use, because its base is torch's and importing this module must not load torch."""
    from torch import nn
    from torch.nn import functional

    class RoundedLayer(nn.Module):
        def __init__(self, layer: nn.Module, amax: float, weight_bits: int, activation_bits: int) -> None:
            super().__init__()
            self.layer, self.amax, self.bits = layer, amax, (weight_bits, activation_bits)

        def forward(self, x: Tensor) -> Tensor:
            layer: Any = self.layer
            loudest = layer.weight.detach().abs().flatten(1).amax(1).clamp_min(1e-30)
            loudest = loudest.reshape(-1, *[1] * (layer.weight.ndim - 1))
            weight = straight_through(layer.weight, loudest.cpu().numpy(), self.bits[0])
            x = straight_through(x, self.amax, self.bits[1])
            if isinstance(layer, nn.Linear):
                return functional.linear(x, weight, layer.bias)
            return functional.conv2d(x, weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    return RoundedLayer


def _layers(module: nn.Module) -> dict[str, nn.Module]:
    from torch import nn

    found: dict[str, nn.Module] = {
        name: layer for name, layer in module.named_modules() if isinstance(layer, (nn.Conv2d, nn.Linear))
    }
    if not found:
        raise CourseError("the module has no Conv2d and no Linear: there is nothing to quantize")
    return found


def _replace(module: nn.Module, name: str, layer: nn.Module) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(module.get_submodule(owner), attribute, layer)
