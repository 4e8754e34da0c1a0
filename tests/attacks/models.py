"""Makers of submissions whose model attacks a parser, a compiler or a reader, and the parts that all makers of models share."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from course_lib.labs.lab01_first_engine.checks import SERVICE
from course_lib.labs.lab01_first_engine.reference import recipe as reference_recipe
from course_lib.models import classifier, export_onnx
from tests.attacks.scene import Scene
from tests.labs.submissions import hostile

# ---- parts


def submission(folder: Path, model: onnx.ModelProto) -> None:
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    reference_recipe(SERVICE).save(folder / "recipe.toml")


def rewrite(folder: Path, change: hostile.Change) -> None:
    submission(folder, hostile.changed(onnx.load(folder / "model.onnx"), change))


def new_model(nodes: Sequence[NodeProto], constants: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def behind(folder: Path, nodes: Sequence[NodeProto], domain: str = "", **constants: np.ndarray) -> None:
    """Let `nodes` make the logits from the true ones."""
    model = onnx.load(folder / "model.onnx")
    for node in model.graph.node:
        node.output[:] = ["true_logits" if name == "logits" else name for name in node.output]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    submission(folder, model)


# ---- submissions


def weights_in_a_secret(folder: Path, scene: Scene) -> None:
    def outside(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=str(scene.secret))

    rewrite(folder, outside)


def a_loop_without_end(folder: Path, scene: Scene) -> None:
    """Rounds are counted in 64 bits; each leaves the condition true."""
    loop = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["on"], name="on"),
            helper.make_node("Mul", ["state", "state"], ["next"], name="square"),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    constants = {"rounds": np.array(2**62), "yes": np.array(True)}
    nodes = [
        helper.make_node("ReduceMean", ["image"], ["mean"], name="mean", keepdims=1),
        helper.make_node("Loop", ["rounds", "yes", "mean"], ["logits"], name="loop", body=loop),
    ]
    submission(folder, new_model(nodes, constants))


def own_operator(folder: Path, scene: Scene) -> None:
    behind(
        folder, [helper.make_node("Mine", ["true_logits"], ["logits"], name="mine", domain="my.library")], domain="my.library"
    )


def scripts_in_names(folder: Path, scene: Scene) -> None:
    model = export_onnx(classifier("wide", pretrained=False))
    for number, node in enumerate(model.graph.node):
        node.name = f'<script>alert({number})</script>"onload="alert(1)'
    submission(folder, model)


def constant_of_64_gigabytes(folder: Path, scene: Scene) -> None:
    _with_constant(
        folder, [helper.make_node("ConstantOfShape", ["size"], ["large"], name="large")], size=np.array([1 << 17, 1 << 17])
    )


def _with_constant(folder: Path, nodes: Sequence[NodeProto], **constants: np.ndarray) -> None:
    """Let `nodes` make a constant ``large``, of which the logits depend by nothing."""
    use = [
        helper.make_node("ReduceSum", ["large"], ["total"], name="total", keepdims=0),
        helper.make_node("Mul", ["total", "nil"], ["nothing"], name="nothing"),
        helper.make_node("Add", ["true_logits", "nothing"], ["logits"], name="sum"),
    ]
    behind(folder, [*nodes, *use], nil=np.array(0, np.float32), **constants)


def compiled_model(folder: Path, scene: Scene) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "compiled.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    (folder / "compiled.ort").replace(folder / "model.onnx")


class _Planted:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.target),)


def pickled_program(folder: Path, scene: Scene) -> None:
    (folder / "model.onnx").write_bytes(pickle.dumps(_Planted(scene.root / "labs/planted")))
