"""What lab 06 gives: a float network that calibration alone cannot save, its images and its forward pass, and its graph in INT8."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib._util.npz_files import read_arrays
from course_lib.errors import BuildError, CourseError
from course_lib.labs.framework import submission
from course_lib.labs.lab06_qat.layers import LAYERS
from course_lib.models import Digits, digits
from course_lib.models.digit_dataset import perturb
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto
    from torch import Tensor

    from course_lib.labs.lab06_qat.float_network import Network

BATCH = 50
RECIPE = Recipe(
    precision="int8",
    profiles=(Profile(image={"min": (1, 1, 32, 32), "opt": (BATCH, 1, 32, 32), "max": (BATCH, 1, 32, 32)}),),
)
CALIBRATION = 500  # of the training images; more change no range by much
NORM_EPS = 1e-5
OPSET = 17  # the newest that every builder of the course reads
TRAINED, MAX_BYTES = "trained.npz", 1 << 20
LOW, HIGH = -128, 127
_COPIES = 4  # of each training digit, each with another perturbation
WEIGHTS = {name: int(np.prod(shape.weight)) for name, shape in LAYERS.items()}  # their number, by layer
Hook = Callable[[str, "Tensor"], "Tensor"]

# ---- the float network


@lru_cache(maxsize=4)  # a class has many learners
def float_model(learner: str = "") -> Network:
    """A learner's float network with its batch norms, in eval mode: a function of images to logits. Do not change it: it is made once.

    The order of the classes is drawn from the id, so a network that was trained for one learner is wrong for another one.
    """
    import torch

    from course_lib.labs.lab06_qat.float_network import trained

    with torch.inference_mode(False):  # also where the first call comes from inside inference mode
        model = trained().requires_grad_(False)
        for part in (model.head.weight, model.head.bias):
            part.copy_(part[_order(learner)].clone())
        return model


def _order(learner: str) -> np.ndarray:
    """The order of a learner's classes."""
    return submission.rng(learner, "lab06").permutation(LAYERS["head"].outputs)


def in_order_of(learner: str, images: Digits) -> Digits:
    """Digits with the labels of a learner's classes."""
    return Digits(images.images, np.argsort(_order(learner))[images.labels])


def layers(learner: str = "") -> dict[str, dict[str, Tensor]]:
    """The weights by layer, new float32 tensors: ``weight``, and ``bias`` (head) or the norm's ``gamma``, ``beta``, ``mean``, ``variance``.

    A weight is ``(out, in / groups, k, k)``, or ``(out, in)`` of the head; everything else is ``(out,)``.
    """
    model, parts = float_model(learner), dict[str, dict[str, Any]]()
    for name, shape in LAYERS.items():
        if not shape.kernel:
            parts[name] = {"weight": model.head.weight, "bias": model.head.bias}
            continue
        norm: Any = model.norms[name]
        parts[name] = {"weight": model.convs[name].weight, "gamma": norm.weight, "beta": norm.bias}
        parts[name] |= {"mean": norm.running_mean, "variance": norm.running_var}
    return {name: {part: tensor.clone() for part, tensor in one.items()} for name, one in parts.items()}


def forward(
    folded: Mapping[str, tuple[Tensor, Tensor]], images: Tensor, read: Hook | None = None, weigh: Hook | None = None
) -> Tensor:
    """Logits ``(n, 10)`` of images ``(n, 1, 32, 32)``.

    Args:
        folded: weight and bias by layer, norms folded.
        read: ``read(name, x)`` takes the place of what a layer reads.
        weigh: ``weigh(name, weight)`` takes the place of its weight.
    """
    from torch.nn import functional

    def layer(name: str, x: Tensor) -> Tensor:
        weight, bias = folded[name]
        x = read(name, x) if read else x
        weight = weigh(name, weight) if weigh else weight
        shape = LAYERS[name]
        if not shape.kernel:
            return functional.linear(x, weight, bias)
        x = functional.conv2d(x, weight, bias, shape.stride, shape.kernel // 2, groups=shape.groups)
        return functional.silu(x) if shape.silu else x

    x = layer("project1", layer("depth1", layer("expand1", layer("stem", images))))
    x = x + layer("project2", layer("depth2", layer("expand2", x)))
    return layer("head", layer("mix", x).mean((2, 3)))


def training_images(learner: str = "") -> Digits:
    """5388 images in random order: each digit of the training part four times, moved, rotated, dimmed and made noisy.

    The labels have the learner's order of classes.
    """
    rng, data = np.random.default_rng([0, _COPIES]), digits("train")
    order = rng.permutation(np.tile(np.arange(len(data)), _COPIES))
    return in_order_of(learner, Digits(perturb(data.images[order], rng), data.labels[order]))


# ---- the network in INT8


@dataclass(frozen=True)
class Stored:
    """A layer, in INT8 or in float.

    Attributes:
        weight: int8 codes or the float32 weight, of the shape that `LAYERS` has.
        scale: float32 ``(out,)``, the step of each output channel; None if the weight is float.
        bias: float32 ``(out,)``.
        input_scale: the step of what the layer reads; None if it reads float.
    """

    weight: np.ndarray
    scale: np.ndarray | None
    bias: np.ndarray
    input_scale: float | None

    def values(self) -> np.ndarray:
        """The weight that the layer multiplies with, float32."""
        return self.weight if self.scale is None else self.weight * self.scale.reshape(along_outputs(self.weight))


def along_outputs(weight: Any) -> tuple[int, ...]:
    """The shape in which one number for each output channel multiplies a weight."""
    return (-1, *[1] * (weight.ndim - 1))


@lru_cache(maxsize=4)  # a class has many learners
def calibration(learner: str = "") -> Mapping[str, Stored]:
    """The given network after min-max calibration."""
    import torch

    largest: dict[str, float] = {}

    def observe(name: str, x: Tensor) -> Tensor:
        largest[name] = float(x.abs().max())
        return x

    with torch.inference_mode():
        forward(_tensors(_folded(learner)), torch.from_numpy(training_images().images[:CALIBRATION]), observe)
    in_int8 = {name: (*codes_and_scale(weight), bias) for name, (weight, bias) in _folded(learner).items()}
    return {name: Stored(codes, scale, bias, largest[name] / HIGH) for name, (codes, scale, bias) in in_int8.items()}


def keep_in_float(names: Collection[str], learner: str = "") -> dict[str, Stored]:
    """The calibrated network with some layers in float: they neither read INT8 nor have INT8 weights.

    Raises:
        CourseError: there is no such layer.
    """
    _check_names(names)
    in_float = {name: Stored(weight, None, bias, None) for name, (weight, bias) in _folded(learner).items()}
    return {name: in_float[name] if name in names else one for name, one in calibration(learner).items()}


def with_input_scales(scales: Mapping[str, float], learner: str = "") -> dict[str, Stored]:
    """The calibrated network with other scales for what its layers read.

    Raises:
        CourseError: there is no such layer, or a scale is not a positive number.
    """
    _check_names(scales)
    changed = {name: replace(calibration(learner)[name], input_scale=float(scale)) for name, scale in scales.items()}
    network = {**calibration(learner), **changed}
    _check_scales(network)
    return network


def codes_and_scale(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight in INT8, with one scale for each output channel from its largest magnitude."""
    scale = np.abs(weight).reshape(len(weight), -1).max(1) / np.float32(HIGH)
    return np.rint(weight / scale.reshape(along_outputs(weight))).astype(np.int8), scale


def accuracy(network: Mapping[str, Stored], images: Digits, *, round_inputs: bool = True) -> float:
    """The accuracy of a network in INT8, computed in PyTorch and not by an engine."""
    import torch

    def rounded(name: str, x: Tensor) -> Tensor:
        scale = network[name].input_scale
        return x if scale is None else torch.round(x / scale).clamp(LOW, HIGH) * scale

    folded = _tensors({name: (one.values(), one.bias) for name, one in network.items()})
    with torch.inference_mode():
        logits = forward(folded, torch.from_numpy(images.images), rounded if round_inputs else None).numpy()
    return share_right(logits, images)


def share_right(logits: np.ndarray, images: Digits) -> float:
    """The accuracy of logits ``(n, 10)``."""
    return float((logits.argmax(1) == images.labels).mean())


def read_trained(file: Path) -> dict[str, Stored]:
    """The network in a file of task 4.

    Raises:
        BuildError: an array is missing, has another type or shape, or has numbers that cannot be multiplied with.
    """
    arrays, network = read_arrays(file, MAX_BYTES), {}
    for name, shape in LAYERS.items():
        outputs, parts = (np.float32, (shape.outputs,)), dict[str, Any]()
        forms: dict[str, Any] = {
            "codes": (np.int8, shape.weight),
            "scale": outputs,
            "bias": outputs,
            "input_scale": (np.float32, ()),
        }
        for part, (kind, expected) in forms.items():
            parts[part] = array = arrays.get(f"{name}.{part}")
            if array is None or array.dtype != kind or array.shape != expected:
                found = "it is missing" if array is None else f"found {array.dtype} of the shape {array.shape}"
                wanted = f"expected an array of {np.dtype(kind)} of the shape {expected}"
                raise BuildError(f"{file.name}: {name}.{part}: {found}, {wanted}")
        if not np.isfinite(parts["bias"]).all():
            raise BuildError(f"{file.name}: {name}.bias is NaN or infinite")
        network[name] = Stored(parts["codes"], parts["scale"], parts["bias"], float(parts["input_scale"]))
    try:
        _check_scales(network)
    except CourseError as error:
        raise BuildError(f"{file.name}: {error}") from None
    return network


def _check_scales(network: Mapping[str, Stored]) -> None:
    for name, one in network.items():
        steps = np.append(one.scale, one.input_scale)  # type: ignore[arg-type]
        if not (np.isfinite(steps) & (steps > 0)).all():
            raise CourseError(f"a scale of {name} is zero, negative or not finite, expected a positive step")


def _check_names(names: Collection[str]) -> None:
    if unknown := [name for name in names if name not in LAYERS]:
        raise CourseError(f"no layer {str(unknown[0])[:60]!r}: the network has {', '.join(LAYERS)}")


@lru_cache(maxsize=4)  # a class has many learners
def _folded(learner: str) -> Mapping[str, tuple[np.ndarray, np.ndarray]]:
    """Weight and bias of each layer, with its norm folded in, float32."""
    folded = {}
    for name, tensors in layers(learner).items():
        layer = {part: tensor.numpy() for part, tensor in tensors.items()}
        weight = layer["weight"]
        if "gamma" not in layer:
            folded[name] = weight, layer["bias"]
            continue
        factor = layer["gamma"] / np.sqrt(layer["variance"] + np.float32(NORM_EPS))
        folded[name] = weight * factor.reshape(along_outputs(weight)), layer["beta"] - layer["mean"] * factor
    return folded


def _tensors(arrays: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, tuple[Tensor, Tensor]]:
    import torch

    return {name: (torch.from_numpy(weight), torch.from_numpy(bias.copy())) for name, (weight, bias) in arrays.items()}


# ---- the graph


def graph(network: Mapping[str, Stored]) -> ModelProto:
    """The network as ONNX, with a Q/DQ pair for each input and each weight in INT8. A layer's node has its name, such as ``depth1``.

    Weights are stored in float in front of their pair, which every builder of the course reads.
    """
    import onnx
    from onnx import helper, numpy_helper

    constants: dict[str, np.ndarray] = {}
    nodes: list[NodeProto] = []
    for node in _float_nodes():
        if node.name in LAYERS:
            nodes += _pairs(node, network[node.name], constants)
        nodes.append(node)
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 1, 32, 32])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", LAYERS["head"].outputs])
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    made = helper.make_graph(nodes, "uneven", [image], [logits], initializers)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def _float_nodes() -> Iterator[NodeProto]:
    from onnx import helper

    x, shortcut = "image", ""
    for name, shape in LAYERS.items():
        if not shape.kernel:
            continue
        parameters: dict[str, Any] = {"kernel_shape": [shape.kernel] * 2, "strides": [shape.stride] * 2}
        parameters |= {"pads": [shape.kernel // 2] * 4, "group": shape.groups}
        yield helper.make_node("Conv", [x, f"{name}.weight", f"{name}.bias"], [f"{name}.sum"], name=name, **parameters)
        x = f"{name}.sum"
        if shape.silu:
            yield helper.make_node("Sigmoid", [x], [f"{name}.sigmoid"], name=f"{name}.sigmoid")
            yield helper.make_node("Mul", [x, f"{name}.sigmoid"], [f"{name}.silu"], name=f"{name}.silu")
            x = f"{name}.silu"
        if name == "project1":
            shortcut = x
        if name == "project2":
            yield helper.make_node("Add", [shortcut, x], ["residual"], name="residual")
            x = "residual"
    yield helper.make_node("GlobalAveragePool", [x], ["pool"], name="pool")
    yield helper.make_node("Flatten", ["pool"], ["flat"], name="flat")
    yield helper.make_node("Gemm", ["flat", "head.weight", "head.bias"], ["logits"], name="head", transB=1)


def _pairs(node: NodeProto, one: Stored, constants: dict[str, np.ndarray]) -> Iterator[NodeProto]:
    """The pairs before a layer's node, which then reads their results, and the constants of both."""
    from onnx import helper

    constants[f"{node.name}.weight"], constants[f"{node.name}.bias"] = np.asarray(one.values(), np.float32), one.bias
    scales: tuple[tuple[int, str, Any, dict[str, Any]], ...] = (
        (0, "input", one.input_scale, {}),
        (1, "weight", one.scale, {"axis": 0}),
    )
    for place, part, scale, axis in scales:
        if scale is None:
            continue
        tensor, step = f"{node.name}.{part}", np.asarray(scale, np.float32)
        constants[f"{tensor}.scale"], constants[f"{tensor}.zero"] = step, np.zeros(step.shape, np.int8)
        parameters, codes, rounded = [f"{tensor}.scale", f"{tensor}.zero"], f"{tensor}.codes", f"{tensor}.rounded"
        yield helper.make_node("QuantizeLinear", [node.input[place], *parameters], [codes], f"{tensor}/quantize", **axis)
        yield helper.make_node("DequantizeLinear", [codes, *parameters], [rounded], f"{tensor}/dequantize", **axis)
        node.input[place] = rounded
