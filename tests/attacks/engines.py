"""Makers of models that cheat: another network, the given one with something before or behind it, or no network."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper

from course_lib.labs.lab01_first_engine.checks import SERVICE
from course_lib.labs.lab01_first_engine.reference import recipe as reference_recipe
from course_lib.models import classifier, digits, export_onnx
from tests.attacks.scene import Scene

CLASSES = 10


def submission(folder: Path, model: onnx.ModelProto) -> None:
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    reference_recipe(SERVICE).save(folder / "recipe.toml")


# ---- no network


def own_operator(folder: Path, scene: Scene) -> None:
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        node.output[:] = ["true_logits" if name == "logits" else name for name in node.output]
    model.graph.node.append(helper.make_node("Mine", ["true_logits"], ["logits"], name="mine", domain="my.library"))
    model.opset_import.append(helper.make_opsetid("my.library", 1))
    submission(folder, model)


class _Planted:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.target),)


def pickled_program(folder: Path, scene: Scene) -> None:
    (folder / "model.onnx").write_bytes(pickle.dumps(_Planted(scene.root / "labs/planted")))


# ---- a false label


def float_called_half(folder: Path, scene: Scene) -> None:
    (folder / "recipe.toml").write_text('precision = "fp16"\n' + (folder / "recipe.toml").read_text())


# ---- other networks


def smaller_network(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(classifier("small")))


def random_weights(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(classifier("wide", pretrained=False)))


class _Memory(torch.nn.Module):
    """Knows some digits of the course by heart, with the network's logits for them."""

    def __init__(self) -> None:
        super().__init__()
        images = torch.from_numpy(digits("test").images[:200])
        network = classifier("wide").eval()
        with torch.no_grad():
            self.logits = torch.nn.Parameter(network(images))
        self.images = torch.nn.Parameter(images.flatten(1))

    def forward(self, image):
        flat = image.flatten(1)
        distance = (self.images**2).sum(1) - 2 * flat @ self.images.T + (flat**2).sum(1, keepdim=True)
        return self.logits[distance.argmin(1)]

    def signature(self):
        return classifier("small").signature()


def memorized_digits(folder: Path, scene: Scene) -> None:
    submission(folder, export_onnx(_Memory()))


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


# ---- the given network with something before or behind it


def fast_for_noise(folder: Path, scene: Scene) -> None:
    """Digits are mostly paper; uniform noise is half ink."""
    _instead(folder, [helper.make_node("ReduceMean", ["image"], ["measure"], name="mean", keepdims=0)], above=0.45)


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
