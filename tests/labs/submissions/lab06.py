"""Submissions for lab 06: files that are right in another way, almost right, or made to cheat."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from course_lib.labs.lab06_qat import calibrated, graph_file
from course_lib.labs.lab06_qat.reference import files
from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS
from course_lib.labs.lab06_qat.stored import Stored

# ---- qat.py

QAT = """
import torch
from torch.nn import functional

class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ratio = x / scale
        codes = torch.round(ratio).clamp(-128, 127)
        ctx.save_for_backward(ratio, codes, scale)
        return codes * scale

    @staticmethod
    def backward(ctx, upstream):
        ratio, codes, scale = ctx.saved_tensors
        inside = (ratio >= -128) & (ratio <= 127)
        to_scale = torch.where(inside, codes - ratio, codes)
        return upstream * inside, (upstream * to_scale).sum_to_size(scale.shape)

def fake_quantize(x, scale, axis=None):
    if axis is not None:
        shape = [1] * x.ndim
        shape[axis] = len(scale)
        scale = scale.reshape(shape)
    return Rounded.apply(x, scale)

def fold(layer):
    weight = layer["weight"]
    if "gamma" not in layer:
        return weight, layer["bias"]
    factor = layer["gamma"] / torch.sqrt(layer["variance"] + 1e-5)
    return weight * factor[:, None, None, None], layer["beta"] - layer["mean"] * factor

def steps_of(weight):
    return weight.detach().flatten(1).abs().max(1).values / 127

def train(layers, images, labels, forward):
    pairs = {name: fold(layer) for name, layer in layers.items()}
    scales = {}
    def watch(name, x):
        scales[name] = 0.5 * x.abs().max() / 127
        return x
    with torch.no_grad():
        forward(pairs, images[:500], watch)
    pairs = {name: (w.clone().requires_grad_(), b.clone().requires_grad_()) for name, (w, b) in pairs.items()}
    read = lambda name, x: fake_quantize(x, scales[name])
    weigh = lambda name, w: fake_quantize(w, steps_of(w), 0)
    optimizer = torch.optim.Adam([one for pair in pairs.values() for one in pair], lr=2e-3)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / STEPS)
        chosen = torch.randint(0, len(images), (64,))
        loss = functional.cross_entropy(forward(pairs, images[chosen], read, weigh), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {
        name: {
            "codes": torch.round(w.detach() / steps_of(w).reshape(-1, *[1] * (w.ndim - 1))),
            "scale": steps_of(w), "bias": b, "input_scale": scales[name],
        }
        for name, (w, b) in pairs.items()
    }

STEPS = 160
"""


def qat(changes: Mapping[str, str] | None = None, *, steps: int = 160) -> str:
    """The source of `QAT`, which has fixed ranges and its own autograd function, with parts of it replaced."""
    text = QAT.replace("STEPS = 160", f"STEPS = {steps}")
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def with_stored_numbers() -> str:
    """`QAT` with a `train` that returns compressed codes of the reference, as far as they fit into the file."""
    parts = [one.weight.tobytes() + one.scale.tobytes() + one.bias.tobytes() for one in reference().values()]  # type: ignore[union-attr]
    packed = base64.b85encode(zlib.compress(b"".join(parts), 9)).decode()
    inputs = [one.input_scale for one in reference().values()]
    return f"""{QAT}
import base64, zlib
import numpy as np

def train(layers, images, labels, forward):
    forward({{name: fold(layer) for name, layer in layers.items()}}, images[:1])
    data, found = zlib.decompress(base64.b85decode({packed!r})), {{}}
    for (name, layer), input_scale in zip(layers.items(), {inputs!r}):
        weight, outputs = layer["weight"], len(layer["weight"])
        codes, data = np.frombuffer(data[:weight.numel()], np.int8), data[weight.numel():]
        scale, bias = np.frombuffer(data[:8 * outputs], np.float32).reshape(2, outputs)
        data = data[8 * outputs:]
        found[name] = {{"codes": codes.reshape(weight.shape), "scale": scale, "bias": bias, "input_scale": np.float32(input_scale)}}
    return found
"""


# ---- networks


def reference() -> dict[str, Stored]:
    """The reference's trained layers."""
    return dict(files.trained())


def trained_in_float() -> dict[str, Stored]:
    """Weights that differ from the given ones and have never been rounded, with calibrated ranges."""
    rng, found = np.random.default_rng(0), {}
    for name, one in calibrated.calibration().items():
        moved = np.clip(one.weight + rng.integers(-1, 2, one.weight.shape) * (rng.random(one.weight.shape) < 0.1), -127, 127)
        found[name] = replace(one, weight=moved.astype(np.int8))
    return found


def calibrated_again() -> dict[str, Stored]:
    """The trained weights with the ranges from calibration."""
    before = calibrated.calibration()
    return {name: replace(one, input_scale=before[name].input_scale) for name, one in reference().items()}


def in_float(*names: str) -> dict[str, Stored]:
    """Some layers of the given network in float, and the others calibrated."""
    given = calibrated.folded_layers()
    spared = {name: Stored(*given[name][:1], None, given[name][1], None) for name in names}
    return {**calibrated.calibration(), **spared}


def zeros() -> dict[str, Stored]:
    """All codes and biases 0."""
    return {
        name: replace(one, weight=np.zeros_like(one.weight), bias=np.zeros_like(one.bias))
        for name, one in calibrated.calibration().items()
    }


def drawn() -> dict[str, Stored]:
    """Random codes."""
    rng = np.random.default_rng(0)
    return {
        name: replace(one, weight=rng.permutation(one.weight.reshape(-1)).reshape(one.weight.shape))
        for name, one in calibrated.calibration().items()
    }


WITHOUT_USE: Mapping[str, Callable[[], dict[str, Stored]]] = {"zeros": zeros, "drawn": drawn}


# ---- model.onnx


def model(layers: Mapping[str, Stored]) -> onnx.ModelProto:
    """The course's graph, to be changed."""
    return graph_file.graph(layers)


def with_codes(layers: Mapping[str, Stored]) -> onnx.ModelProto:
    """The same network with stored int8 codes and one DequantizeLinear for each weight."""
    made = model(layers)
    graph = made.graph
    for name, one in layers.items():
        graph.node.remove(node(made, f"{name}.weight/quantize"))
        constant(made, f"{name}.weight").CopyFrom(numpy_helper.from_array(one.weight, f"{name}.weight"))
        node(made, f"{name}.weight/dequantize").input[0] = f"{name}.weight"
    return made


@cache
def _right() -> bytes:
    return bytes(model(reference()).SerializeToString())


def right() -> onnx.ModelProto:
    """A right file, to be changed."""
    return onnx.load_model_from_string(_right())


def another(folder: Path) -> None:
    """Another right answer: fixed ranges, and codes in the file."""
    (folder / "qat.py").write_text(qat())
    onnx.save(with_codes(reference()), folder / graph_file.MODEL)


def constant(of: onnx.ModelProto, name: str) -> TensorProto:
    """A constant by its name."""
    return next(tensor for tensor in of.graph.initializer if tensor.name == name)


def node(of: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """A node by its name."""
    return next(one for one in of.graph.node if one.name == name)


def pair(of: onnx.ModelProto, tensor: str, reader: str, place: int) -> None:
    """Insert a pair of `tensor` before an input of a node, with one scale."""
    graph = of.graph
    graph.initializer.append(numpy_helper.from_array(np.float32(0.1), f"{tensor}.more"))
    graph.initializer.append(numpy_helper.from_array(np.int8(0), f"{tensor}.none"))
    at = list(graph.node).index(node(of, reader))
    parameters = [f"{tensor}.more", f"{tensor}.none"]
    graph.node.insert(
        at, helper.make_node("DequantizeLinear", [f"{tensor}.q", *parameters], [f"{tensor}.dq"], f"{tensor}/more/dq")
    )
    graph.node.insert(at, helper.make_node("QuantizeLinear", [tensor, *parameters], [f"{tensor}.q"], f"{tensor}/more/q"))
    node(of, reader).input[place] = f"{tensor}.dq"


# Cheats: each gets a graph that is right, and changes something that a judge could overlook

Cheat = Callable[[onnx.ModelProto], None]


def float_path_beside_decoys(graph: onnx.ModelProto) -> None:
    """The float network computes the answer, and the INT8 layers are added with a factor of 0."""
    float_one = graph_file.float_graph(calibrated.folded_layers()).graph
    for one in float_one.node:
        one.name = f"true.{one.name}"
        one.output[0] = f"true.{one.output[0]}"
        for place, name in enumerate(one.input):
            one.input[place] = name if name == "image" else f"true.{name}"
    for tensor in float_one.initializer:
        tensor.name = f"true.{tensor.name}"
    graph.graph.node.extend(float_one.node)
    graph.graph.initializer.extend(float_one.initializer)
    graph.graph.initializer.append(numpy_helper.from_array(np.float32(0), "nothing"))
    node(graph, "head").output[0] = "decoy"
    graph.graph.node.append(helper.make_node("Mul", ["decoy", "nothing"], ["zero"], "zero"))
    graph.graph.node.append(helper.make_node("Add", ["true.logits", "zero"], ["logits"], "sum"))


def scales_that_do_nothing(graph: onnx.ModelProto) -> None:
    """The layers read the float tensor, and the pairs feed nothing."""
    for name in LAYERS:
        node(graph, name).input[0] = node(graph, f"{name}.input/quantize").input[0]


def table_of_labels(graph: onnx.ModelProto) -> None:
    """A table of the public images with their labels, from which answers would be looked up."""
    graph.graph.initializer.append(numpy_helper.from_array(np.zeros((450, 64), np.float32), "public"))


def scales_of_channels(graph: onnx.ModelProto) -> None:
    """The input of a depthwise layer has one scale for each channel, which INT8 kernels do not have."""
    for operator in ("quantize", "dequantize"):
        one = node(graph, f"depth1.input/{operator}")
        one.attribute.append(helper.make_attribute("axis", 1))
    for part, dtype in (("scale", np.float32), ("zero", np.int8)):
        tensor = constant(graph, f"depth1.input.{part}")
        tensor.CopyFrom(numpy_helper.from_array(np.full(64, numpy_helper.to_array(tensor), dtype), tensor.name))


def finer_steps(graph: onnx.ModelProto) -> None:
    """The codes of an activation have sixteen bits."""
    tensor = constant(graph, "depth1.input.zero")
    tensor.CopyFrom(numpy_helper.from_array(np.int16(0), tensor.name))


def correction(graph: onnx.ModelProto) -> None:
    """What rounding lost is added again."""
    one = node(graph, "depth1")
    one.output[0] = "rounded"
    at = list(graph.graph.node).index(one)
    graph.graph.node.insert(at + 1, helper.make_node("Add", ["rounded", "lost"], ["depth1.sum"], "correction"))
    graph.graph.initializer.append(numpy_helper.from_array(np.zeros((64, 8, 8), np.float32), "lost"))


def weights_elsewhere(graph: onnx.ModelProto) -> None:
    """The weights are in another file."""
    tensor = constant(graph, "mix.weight")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


CHEATS: tuple[tuple[Cheat, str], ...] = (
    (float_path_beside_decoys, "is not in the float graph: insert nothing but pairs"),
    (scales_that_do_nothing, "is not before a layer"),
    (table_of_labels, "the constant 'public' is stored and not used"),
    (scales_of_channels, "the input of depth1 has 64 scales: an activation must have one"),
    (finer_steps, "the zero point of the input of depth1 must be 0 and int8"),
    (correction, "the node 'correction' (Add) is not in the float graph"),
    (weights_elsewhere, "is in another file"),
)
