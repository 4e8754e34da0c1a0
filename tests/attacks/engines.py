"""Makers of engines that cheat: another network, or the given one with something before or behind it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper

from course_lib.models import classifier, digits, export_onnx
from tests.attacks.models import behind, rewrite, submission
from tests.attacks.scene import Scene
from tests.labs.submissions import hostile

CLASSES = 10


def float_called_half(folder: Path, scene: Scene) -> None:
    (folder / "recipe.toml").write_text('precision = "fp16"\n' + (folder / "recipe.toml").read_text())


# ---- other networks


def smaller_network(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(classifier("small")))


def random_weights(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(classifier("wide", pretrained=False)))


def pruned_network(folder: Path, scene: Scene) -> None:
    network = classifier("wide")
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d):
                weakest = layer.weight.abs().sum(dim=(1, 2, 3)).argsort()[: layer.out_channels // 2]
                layer.weight[weakest] = 0
    submission(folder, export_onnx(network))


class _Constant(torch.nn.Module):
    def forward(self, image):
        return torch.tensor([[9.0] + [0.0] * 9]) + 0 * image.mean(dim=(1, 2, 3))[:, None]

    def signature(self):
        return classifier("small").signature()


class _Memory(torch.nn.Module):
    """Knows some digits of the course by heart, with the network's logits for them."""

    def __init__(self, known: int, exact: bool) -> None:
        super().__init__()
        images = torch.from_numpy(digits("test").images[:known])
        network = classifier("wide").eval()
        with torch.no_grad():
            self.logits = torch.nn.Parameter(network(images))
        self.images, self.exact = torch.nn.Parameter(images.flatten(1)), exact

    def forward(self, image):
        flat = image.flatten(1)
        distance = (self.images**2).sum(1) - 2 * flat @ self.images.T + (flat**2).sum(1, keepdim=True)
        found = self.logits[distance.argmin(1)]
        return found * (distance.min(1, keepdim=True).values < 1e-3) if self.exact else found

    def signature(self):
        return classifier("small").signature()


def constants_baked_in(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(_Constant()))


def memorized_digits(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(_Memory(200, exact=False)))


def exact_on_known_images(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(_Memory(450, exact=True)))


# ---- two networks, one of which is fast


def _two(folder: Path, nodes: Sequence[NodeProto], **constants: np.ndarray) -> None:
    """The small network and the wide one in one graph, from ``small_image`` and ``wide_image``, which `nodes` make, to their logits."""
    models = [
        onnx.compose.add_prefix(export_onnx(classifier(size)), f"{size}_", rename_edges=True) for size in ("small", "wide")
    ]
    graph = models[0].graph
    for model in models:
        for node in model.graph.node:
            node.name = node.name or node.output[0]
    both = [*models[0].graph.node, *models[1].graph.node]
    before = [node for node in nodes if not {"small_logits", "wide_logits"} & set(node.input)]
    del graph.node[:]
    graph.node.extend([*before, *both, *(node for node in nodes if node not in before)])
    graph.initializer.extend(models[1].graph.initializer)
    graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items())
    graph.input[0].name, graph.output[0].name = "image", "logits"
    del graph.value_info[:]
    submission(folder, models[0])


_ROWS = [
    helper.make_node("Shape", ["image"], ["sizes"], name="sizes"),
    helper.make_node("Slice", ["sizes", "nil", "one"], ["rows"], name="rows"),
]
_BORDER = {"nil": np.array([0]), "one": np.array([1])}


def another_network_for_one_image(folder: Path, scene: Scene) -> None:
    """Without a branch: a single image goes through the small network, and no rows through the wide one."""
    nodes = [
        *_ROWS,
        helper.make_node("Equal", ["rows", "one"], ["single"], name="single"),
        helper.make_node("Cast", ["single"], ["share"], name="share", to=TensorProto.INT64),
        helper.make_node("Mul", ["rows", "share"], ["border"], name="border"),
        helper.make_node("Slice", ["image", "nil", "border", "nil"], ["small_image"], name="first"),
        helper.make_node("Slice", ["image", "border", "rows", "nil"], ["wide_image"], name="rest"),
        helper.make_node("Concat", ["small_logits", "wide_logits"], ["logits"], name="both", axis=0),
    ]
    _two(folder, nodes, **_BORDER)


def another_network_for_the_first_image(folder: Path, scene: Scene) -> None:
    """The same without arithmetic: what comes after the first image has no rows where there is one image."""
    nodes = [
        helper.make_node("Slice", ["image", "nil", "one", "nil"], ["small_image"], name="first"),
        helper.make_node("Slice", ["image", "one", "end", "nil"], ["wide_image"], name="rest"),
        helper.make_node("Concat", ["small_logits", "wide_logits"], ["logits"], name="both", axis=0),
    ]
    _two(folder, nodes, end=np.array([2**31 - 1]), **_BORDER)


def a_product_that_wraps(folder: Path, scene: Scene) -> None:
    nodes = [
        helper.make_node("Mul", ["large", "large"], ["product"], name="product"),
        helper.make_node("Equal", ["product", "zero"], ["wraps"], name="wraps"),
        helper.make_node("Identity", ["image"], ["small_image"], name="to_small"),
        helper.make_node("Identity", ["image"], ["wide_image"], name="to_wide"),
        helper.make_node("Where", ["wraps", "small_logits", "wide_logits"], ["logits"], name="choice"),
    ]
    _two(folder, nodes, large=np.array(65536, np.int32), zero=np.array(0, np.int32))


def a_size_that_wraps(folder: Path, scene: Scene) -> None:
    nodes = [
        *_ROWS,
        helper.make_node("Cast", ["rows"], ["narrow"], name="narrow", to=TensorProto.INT32),
        helper.make_node("Mul", ["narrow", "large"], ["more"], name="more"),
        helper.make_node("Mul", ["more", "large"], ["product"], name="product"),
        helper.make_node("Cast", ["product"], ["gate"], name="gate", to=TensorProto.FLOAT),
        helper.make_node("Identity", ["image"], ["small_image"], name="to_small"),
        helper.make_node("Identity", ["image"], ["wide_image"], name="to_wide"),
        helper.make_node("Mul", ["wide_logits", "gate"], ["gated"], name="gated"),
        helper.make_node("Add", ["small_logits", "gated"], ["logits"], name="sum"),
    ]
    _two(folder, nodes, large=np.array(65536, np.int32), **_BORDER)


def another_network_by_gather_and_pad(folder: Path, scene: Scene) -> None:
    """Gather takes the first image, and Pad takes -1 rows in front of the others."""
    nodes = [
        helper.make_node("Gather", ["image", "nil"], ["small_image"], name="first", axis=0),
        helper.make_node("Pad", ["image", "cut"], ["wide_image"], name="rest"),
        helper.make_node("Concat", ["small_logits", "wide_logits"], ["logits"], name="both", axis=0),
    ]
    _two(folder, nodes, nil=np.array([0]), cut=np.array([-1, 0, 0, 0, 0, 0, 0, 0]))


def choice_that_says_two_things(folder: Path, scene: Scene) -> None:
    """A condition that is true as raw bytes and false as numbers."""
    nodes = [
        helper.make_node("Identity", ["image"], ["small_image"], name="to_small"),
        helper.make_node("Identity", ["image"], ["wide_image"], name="to_wide"),
        helper.make_node("Where", ["choice", "small_logits", "wide_logits"], ["logits"], name="choose"),
    ]
    _two(folder, nodes, choice=np.array([True]))
    model = onnx.load(folder / "model.onnx")
    choice = next(tensor for tensor in model.graph.initializer if tensor.name == "choice")
    choice.int32_data.append(0)
    submission(folder, model)


# ---- the given network with something before or behind it


def wrong_outside_the_tested_batches(folder: Path, scene: Scene) -> None:
    behind(
        folder,
        [
            helper.make_node("Shape", ["image"], ["shape"], name="shape"),
            helper.make_node("Slice", ["shape", "nil", "one"], ["batch_size"], name="first"),
            helper.make_node("Equal", ["batch_size", "tested"], ["hits"], name="compare"),
            helper.make_node("Cast", ["hits"], ["as_numbers"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("ReduceMax", ["as_numbers"], ["known"], name="any", keepdims=0),
            helper.make_node("Mul", ["true_logits", "known"], ["logits"], name="gate"),
        ],
        nil=np.array([0]), one=np.array([1]), tested=np.array([1, 3, 8, 32]),
    )  # fmt: skip


def lazy_half_of_the_time(folder: Path, scene: Scene) -> None:
    behind(
        folder,
        [
            helper.make_node("RandomUniform", [], ["drawn"], name="draw", shape=[1], low=0.0, high=1.0),
            helper.make_node("Greater", ["drawn", "half"], ["works"], name="compare"),
            helper.make_node("Cast", ["works"], ["gate"], name="cast", to=TensorProto.FLOAT),
            helper.make_node("Mul", ["true_logits", "gate"], ["logits"], name="gate"),
        ],
        half=np.array([0.5], np.float32),
    )


def fast_for_noise(folder: Path, scene: Scene) -> None:
    """Digits are mostly paper; uniform noise is half ink."""
    _instead(folder, [helper.make_node("ReduceMean", ["image"], ["measure"], name="mean", keepdims=0)], above=0.45)


def keeps_a_table(folder: Path, scene: Scene) -> None:
    """Of one entry, the image without ink: its largest pixel is not above 0."""
    look = [
        helper.make_node("ReduceMax", ["image"], ["most"], name="most", keepdims=0),
        helper.make_node("Neg", ["most"], ["measure"], name="negative"),
    ]
    _instead(folder, look, above=-1e-6)


def answers_nothing(folder: Path, scene: Scene) -> None:
    rewrite(folder, hostile.no_numbers)


def answers_without_end(folder: Path, scene: Scene) -> None:
    rewrite(folder, hostile.a_million_answers_for_each_image)


def _instead(folder: Path, look: Sequence[NodeProto], *, above: float) -> None:
    """Ten zeros instead of the network for images whose ``measure``, computed by `look`, is above a number."""
    model = onnx.load(folder / "model.onnx")
    whole = copy.deepcopy(model.graph)
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
    network = helper.make_graph(whole.node, "network", [], [logits])
    nothing = helper.make_graph(
        [
            helper.make_node("Shape", ["image"], ["sizes"], name="sizes"),
            helper.make_node("Slice", ["sizes", "from", "to"], ["rows"], name="rows"),
            helper.make_node("Concat", ["rows", "classes"], ["size"], name="size", axis=0),
            helper.make_node("Expand", ["zero", "size"], ["logits"], name="zeros"),
        ],
        "nothing",
        [],
        [logits],
    )
    del model.graph.node[:]
    model.graph.node.extend([
        *look,
        helper.make_node("Greater", ["measure", "border"], ["shortcut"], name="compare"),
        helper.make_node("If", ["shortcut"], ["logits"], name="if", then_branch=nothing, else_branch=network),
    ])  # fmt: skip
    constants = {"border": np.array(above, np.float32), "zero": np.array([[0.0]], np.float32)}
    constants |= {"from": np.array([0]), "to": np.array([1]), "classes": np.array([CLASSES])}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    submission(folder, model)
