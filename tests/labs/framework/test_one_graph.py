"""One graph for builder and runner: a graph without branches passes unchanged, and what could choose a computation is rejected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from course_lib.errors import TWO_READINGS, BuildError
from course_lib.labs import Examiner
from course_lib.labs.framework import onnx_model
from course_lib.models import classifier, export_onnx

FLOAT = TensorProto.FLOAT


def node(operator: str, inputs: str, output: str, **attributes) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), [output], name=output, **attributes)


def model(*nodes: onnx.NodeProto, **constants) -> onnx.ModelProto:
    """A graph from `x`, float32 ``(batch, 4)``, to `y`."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_branch() -> onnx.ModelProto:
    branches = [
        helper.make_graph([node("Identity", "x", name)], name, [], [helper.make_tensor_value_info(name, FLOAT, None)])
        for name in ("a", "b")
    ]
    condition = np.array(True)
    return model(node("If", "condition", "y", then_branch=branches[0], else_branch=branches[1]), condition=condition)


def with_function() -> onnx.ModelProto:
    made = model(helper.make_node("Twice", ["x"], ["y"], domain="own"))
    opsets = [helper.make_opsetid("", 17)]
    made.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], opsets))
    return made


def with_weights_elsewhere() -> onnx.ModelProto:
    made = model(node("Add", "x w", "y"), w=np.ones(4, np.float32))
    made.graph.initializer[0].external_data.add(key="location", value="weights.bin")
    made.graph.initializer[0].data_location = TensorProto.EXTERNAL
    return made


REJECTED = {
    "a branch": (with_branch, "'y' (If) is control flow"),
    "a function": (with_function, "Inline them"),
    "another library's operator": (
        lambda: model(helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")),
        "com.microsoft",
    ),
    "random numbers": (lambda: model(node("RandomNormalLike", "x", "y")), "draws random numbers"),
    "a size that depends on values": (lambda: model(node("NonZero", "x", "y")), "depends on values"),
    "batch normalization in training": (
        lambda: model(helper.make_node("BatchNormalization", ["x", "w", "w", "w", "w"], ["y"], training_mode=1), w=np.ones(4)),
        "in training mode",
    ),
    "weights in another file": (with_weights_elsewhere, "save the model with its weights inside"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_what_could_hide_a_computation_is_rejected(name):
    make, words = REJECTED[name]
    with pytest.raises(BuildError) as rejected:
        onnx_model.plain_graph(make().SerializeToString())
    assert words in str(rejected.value)


def test_an_exported_network_stays_as_it_is():
    exported = export_onnx(classifier("wide"))
    assert onnx.ModelProto.FromString(onnx_model.plain_graph(exported.SerializeToString())) == exported


def test_every_node_has_a_name_of_its_own():
    made = model(node("Neg", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "y"))
    for one, name in zip(made.graph.node, ("w", "w", ""), strict=True):
        one.name = name
    named = onnx.ModelProto.FromString(onnx_model.plain_graph(made.SerializeToString()))
    assert [one.name for one in named.graph.node] == ["w", "w_1", "Abs_2"]


def test_the_file_is_read_in_another_process(tmp_path: Path):
    path = tmp_path / "model.onnx"
    (tmp_path / "scratch").mkdir()
    path.write_bytes(model(node("RandomNormalLike", "x", "noise"), node("Add", "x noise", "y")).SerializeToString())
    with pytest.raises(BuildError, match=r"model\.onnx: node 'noise'") as rejected:
        onnx_model.fixed(path, tmp_path / "scratch", Examiner())
    assert rejected.value.code == TWO_READINGS
    path.write_bytes(b"nonsense")
    with pytest.raises(BuildError, match="not an ONNX model"):
        onnx_model.fixed(path, tmp_path / "scratch", Examiner())
