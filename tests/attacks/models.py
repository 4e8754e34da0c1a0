"""Makers of submissions whose model attacks a parser, a compiler or a reader, and the parts that all makers of models share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from course_lib.labs.lab01_first_engine.lab import SERVICE
from course_lib.labs.lab01_first_engine.reference import recipe as reference_recipe
from course_lib.models import classifier, export_onnx
from course_lib.precision import LOWERED
from tests.attacks.scene import Scene
from tests.labs.submissions import hostile
from tests.labs.submissions import lab04 as lab04_submissions

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


def weights_larger_than_any_memory(folder: Path, scene: Scene) -> None:
    rewrite(folder, hostile.weights_larger_than_any_memory)


def weights_elsewhere(folder: Path, scene: Scene) -> None:
    rewrite(folder, hostile.weights_in_a_file_elsewhere)


def weights_in_a_secret(folder: Path, scene: Scene) -> None:
    def outside(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=str(scene.secret))

    rewrite(folder, outside)


def a_million_nodes(folder: Path, scene: Scene) -> None:
    nodes = [helper.make_node("Neg", [f"{n}"], [f"{n + 1}"]) for n in range(1_000_000)]
    nodes[0].input[0], nodes[-1].output[0] = "image", "logits"
    submission(folder, new_model(nodes))


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


def branches_in_branches(folder: Path, scene: Scene) -> None:
    """Each condition is a message in a message in a message; a parser of protocol buffers stops at a hundred levels."""

    def branch(node: NodeProto) -> onnx.GraphProto:
        return helper.make_graph([node], "branch", [], [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)])

    straight = helper.make_node("Identity", ["image"], ["logits"], name="straight")
    node = straight
    for depth in range(30):
        node = helper.make_node(
            "If", ["yes"], ["logits"], name=f"if{depth}", then_branch=branch(node), else_branch=branch(straight)
        )
    submission(folder, new_model([node], {"yes": np.array(True)}))


def own_operator(folder: Path, scene: Scene) -> None:
    behind(
        folder, [helper.make_node("Mine", ["true_logits"], ["logits"], name="mine", domain="my.library")], domain="my.library"
    )


def compiled_part(folder: Path, scene: Scene) -> None:
    node = helper.make_node(
        "EPContext", ["true_logits"], ["logits"], name="part", domain="com.microsoft",
        embed_mode=0, ep_cache_context=str(scene.secret), source="TensorRTExecutionProvider", main_context=1,
    )  # fmt: skip
    behind(folder, [node], domain="com.microsoft")


def names_that_are_no_text(folder: Path, scene: Scene) -> None:
    model = onnx.load(folder / "model.onnx")
    model.graph.node[0].name = "name-of-ten"
    data = model.SerializeToString().replace(b"name-of-ten", b"\xff\xfe\xed\xa0\x80name")
    (folder / "model.onnx").write_bytes(data)


def scripts_in_names(folder: Path, scene: Scene) -> None:
    model = export_onnx(classifier("wide", pretrained=False))
    for number, node in enumerate(model.graph.node):
        node.name = f'<script>alert({number})</script>"onload="alert(1)'
    submission(folder, model)


def operators_imported_twice(folder: Path, scene: Scene) -> None:
    rewrite(folder, lambda model: model.opset_import.insert(0, helper.make_opsetid("ai.onnx", 11)))


def two_weights_of_one_name(folder: Path, scene: Scene) -> None:
    def again(model: onnx.ModelProto) -> None:
        weight = model.graph.initializer[0]
        model.graph.initializer.append(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(weight)), weight.name))

    rewrite(folder, again)


def function_called_relu(folder: Path, scene: Scene) -> None:
    def define(model: onnx.ModelProto) -> None:
        model.ir_version = 10
        nothing = helper.make_node("Identity", ["x"], ["y"])
        model.functions.append(helper.make_function("", "Relu", ["x"], ["y"], [nothing], list(model.opset_import)))

    rewrite(folder, define)


def constant_of_64_gigabytes(folder: Path, scene: Scene) -> None:
    _with_constant(
        folder, [helper.make_node("ConstantOfShape", ["size"], ["large"], name="large")], size=np.array([1 << 17, 1 << 17])
    )


def constants_that_take_hours(folder: Path, scene: Scene) -> None:
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [1 / 4096])
    nodes = [helper.make_node("ConstantOfShape", ["size"], ["0"], name="first", value=value)]
    nodes += [helper.make_node("MatMul", [f"{n}", "0"], [f"{n + 1}" if n < 399 else "large"], name=f"{n}") for n in range(400)]
    _with_constant(folder, nodes, size=np.array([4096, 4096]))


def marked_as_lowered(folder: Path, scene: Scene) -> None:
    rewrite(folder, lambda model: model.metadata_props.add(key=LOWERED, value="onnxruntime"))


def escapes_in_names(folder: Path, scene: Scene) -> None:
    name = "\x1b[2J\x1b]0;planted\x07\u202e<script>alert(1)</script>"
    behind(folder, [helper.make_node("Bernoulli", ["true_logits"], ["logits"], name=name)])


def two_models_in_one_file(folder: Path, scene: Scene) -> None:
    with open(folder / "model.onnx", "ab") as file:
        file.write(export_onnx(classifier("small")).SerializeToString())


def sizes_that_are_not_true(folder: Path, scene: Scene) -> None:
    """What is called ``claimed`` has a dynamic batch, and the file says that it has 32 rows."""
    nodes = [
        helper.make_node("Identity", ["true_logits"], ["claimed"], name="claim"),
        helper.make_node("Slice", ["claimed", "nil", "one", "nil"], ["first"], name="first"),
        helper.make_node("Slice", ["claimed", "one", "end", "nil"], ["rest"], name="rest"),
        helper.make_node("Concat", ["first", "rest"], ["logits"], name="both", axis=0),
    ]
    behind(folder, nodes, nil=np.array([0]), one=np.array([1]), end=np.array([2**31 - 1]))
    claims = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 10]) for name in ("true_logits", "claimed")]
    rewrite(folder, lambda model: model.graph.value_info.extend(claims))


def hundreds_of_profiles(folder: Path, scene: Scene) -> None:
    profile = "[[profile]]\nimage = {{ min = [1, 1, 32, 32], opt = [{}, 1, 32, 32], max = [32, 1, 32, 32] }}\n"
    (folder / "recipe.toml").write_text("".join(profile.format(1 + number % 32) for number in range(600)))


def _with_constant(folder: Path, nodes: Sequence[NodeProto], **constants: np.ndarray) -> None:
    """Let `nodes` make a constant ``large``, of which the logits depend by nothing."""
    use = [
        helper.make_node("ReduceSum", ["large"], ["total"], name="total", keepdims=0),
        helper.make_node("Mul", ["total", "nil"], ["nothing"], name="nothing"),
        helper.make_node("Add", ["true_logits", "nothing"], ["logits"], name="sum"),
    ]
    behind(folder, [*nodes, *use], nil=np.array(0, np.float32), **constants)


# ---- other labs


def an_attention_for_show(folder: Path, _: object) -> None:
    model = lab04_submissions.with_an_attention_for_show(lab04_submissions.known_answer, range(4))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
