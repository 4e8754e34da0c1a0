"""One graph for builder and runner: constants are folded by the course, and what could still be read in two ways is rejected."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from course_lib.errors import TWO_READINGS, BuildError
from course_lib.labs import Examiner
from course_lib.labs.framework import one_graph
from course_lib.labs.framework.constant_folding import fold
from course_lib.labs.framework.graph_rules import check_form, check_values

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def node(operator: str, inputs: str, output: str, **attributes) -> onnx.NodeProto:
    """A node named after its output; "_" is an input that is left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(operator, names, [output], name=output, **attributes)


def model(*nodes: onnx.NodeProto, rows="batch", **constants) -> onnx.ModelProto:
    """A graph from `x`, float32 ``(rows, 4)``, to `y`."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, [rows, 4])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def checked(made: onnx.ModelProto) -> onnx.ModelProto:
    check_form(made)
    check_values(made, fold(made))
    return made


def operators(made: onnx.ModelProto) -> list[str]:
    return [one.op_type for one in made.graph.node]


def answers(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


BIG = np.array(65536, np.int32)
X = np.random.default_rng(0).random((3, 4), np.float32)

HONEST = {
    "a reshape to half of the rows": model(
        node("Shape", "x", "sizes"),
        node("Gather", "sizes zero", "rows"),
        node("Mul", "rows two", "doubled"),
        node("Unsqueeze", "doubled nil", "column"),
        node("Concat", "column two_each", "shape", axis=0),
        node("Reshape", "x shape", "y"),
        zero=np.array(0), two=np.array(2), nil=[0], two_each=[2],
    ),
    "a table of positions that ends with the rows": model(
        node("Shape", "x", "sizes"),
        node("Gather", "sizes zero", "rows"),
        node("Unsqueeze", "rows nil", "end"),
        node("Slice", "table nil end nil", "positions"),
        node("Add", "x positions", "y"),
        zero=np.array(0), nil=[0], table=np.ones((64, 4), np.float32),
    ),
    "a scale made of a static size": model(
        node("Shape", "x", "sizes"),
        node("Gather", "sizes one", "width"),
        node("Cast", "width", "number", to=FLOAT),
        node("Sqrt", "number", "root"),
        node("Div", "x root", "y"),
        one=np.array(1),
    ),
    "a choice for each number": model(
        node("Greater", "x zero", "positive"), node("Where", "positive x zero", "y"), zero=np.array(0.5, np.float32)
    ),
    "quantized weights": model(
        node("QuantizeLinear", "w scale nil", "q"),
        node("DequantizeLinear", "q scale nil", "d"),
        node("Transpose", "d", "t", perm=[1, 0]),
        node("MatMul", "x t", "y"),
        w=np.eye(4, dtype=np.float32), scale=np.array(0.01, np.float32), nil=np.array(0, np.int8),
    ),
    "constants made by nodes": model(
        node("Constant", "", "a", value=numpy_helper.from_array(np.array(3, np.float32))),
        node("Mul", "a a", "b"),
        node("Mul", "x b", "y"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_graph_computes_the_same_after_folding(name):
    before = answers(HONEST[name], X)
    made = onnx.ModelProto.FromString(HONEST[name].SerializeToString())
    np.testing.assert_array_equal(answers(checked(made), X), before)


def test_what_depends_on_constants_alone_is_a_constant():
    made = checked(onnx.ModelProto.FromString(HONEST["a scale made of a static size"].SerializeToString()))
    assert operators(made) == ["Div"]
    made = checked(onnx.ModelProto.FromString(HONEST["quantized weights"].SerializeToString()))
    assert operators(made)[:2] == ["QuantizeLinear", "DequantizeLinear"], "pairs around weights say that a layer is INT8"


def batch_as_number() -> list[onnx.NodeProto]:
    return [node("Shape", "x", "sizes"), node("Gather", "sizes zero", "rows")]


def twice(one: onnx.NodeProto, **attribute: int) -> onnx.NodeProto:
    """A first attribute of the same name in front."""
    one.attribute.extend(helper.make_attribute(name, value) for name, value in attribute.items())
    return one


def two_values(one: onnx.NodeProto) -> onnx.NodeProto:
    """An integer that is a list as well."""
    one.attribute[0].ints.append(0)
    return one


def two_readings(made: onnx.ModelProto, number: float) -> onnx.ModelProto:
    """The first constant has another number beside its bytes."""
    made.graph.initializer[0].float_data.append(number)
    return made


def claims_rows(made: onnx.ModelProto) -> onnx.ModelProto:
    """The value ``a`` has 32 rows, says the file."""
    made.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, [32, 4]))
    return made


TWO = {
    "an integer product that wraps chooses a network": (
        model(
            node("Mul", "big big", "product"),
            node("Equal", "product nil", "wraps"),
            node("Where", "wraps other x", "y"),
            node("Neg", "x", "other"),
            big=BIG, nil=np.array(0, np.int32),
        ),
        "before any node makes it",
    ),
    "the same with its nodes in order": (
        model(
            node("Mul", "big big", "product"),
            node("Equal", "product nil", "wraps"),
            node("Neg", "x", "other"),
            node("Where", "wraps other x", "y"),
            big=BIG, nil=np.array(0, np.int32),
        ),
        "'y' (Where) has a condition that is known in advance",
    ),
    "the product starts from a size": (
        model(
            *batch_as_number(),
            node("Mul", "rows nil", "vanishes"),
            node("Add", "vanishes big", "large"),
            node("Mul", "large large", "product"),
            node("Cast", "product", "gate", to=FLOAT),
            node("Mul", "x gate", "y"),
            zero=np.array(0), nil=np.array(0), big=np.array(2**32),
        ),
        "'gate' (Cast) reads a number computed from sizes",
    ),
    "a size is compared": (
        model(
            *batch_as_number(),
            node("Equal", "rows one", "single"),
            node("Where", "single x other", "y"),
            zero=np.array(0), one=np.array(1), other=np.zeros((1, 4), np.float32),
        ),
        "'single' (Equal) reads a size",
    ),
    "no rows for a batch of one": (
        model(
            *batch_as_number(),
            node("Sub", "rows one", "fewer"),
            node("Unsqueeze", "fewer nil", "end"),
            node("Slice", "x nil end nil", "y"),
            zero=np.array(0), one=np.array(1), nil=[0],
        ),
        "'y' (Slice) reads a number computed from sizes",
    ),
    "no rows for a batch of one, and no arithmetic": (
        model(node("Slice", "x one end nil", "y"), one=[1], end=[2**31 - 1], nil=[0]),
        "takes a part of a dynamic dimension",
    ),
    "rows repeated as often as a size says": (
        model(
            *batch_as_number(),
            node("Div", "rows two", "half"),
            node("Unsqueeze", "half nil", "times"),
            node("Concat", "times once", "repeats", axis=0),
            node("Tile", "x repeats", "y"),
            zero=np.array(0), two=np.array(2), nil=[0], once=[1],
        ),
        "'y' (Tile) reads a number computed from sizes",
    ),
    "data as integers": (
        model(
            node("Cast", "x", "integers", to=INT32),
            node("Mul", "integers big", "product"),
            node("Cast", "product", "y", to=FLOAT),
            big=BIG,
        ),
        "'integers' (Cast) turns data into integers",
    ),
    "quantized data in integer arithmetic": (
        model(
            node("QuantizeLinear", "x scale nil", "q"),
            node("Sign", "q", "product"),
            node("DequantizeLinear", "product scale nil", "y"),
            scale=np.array(0.01, np.float32), nil=np.array(0, np.int8),
        ),
        "computes with quantized integers",
    ),
    "a quantized constant is compared": (
        model(
            node("QuantizeLinear", "w scale nil", "q"),
            node("DequantizeLinear", "q scale nil", "d"),
            node("Greater", "d w", "up"),
            node("Where", "up x w", "y"),
            w=np.array(0.025, np.float32), scale=np.array(0.01, np.float32), nil=np.array(0, np.int8),
        ),
        "compares a quantized constant and a constant",
    ),
    "a part whose end is chosen by values": (
        model(
            node("ReduceMean", "x", "mean", keepdims=0),
            node("Less", "mean half", "dark"),
            node("Where", "dark two one", "number"),
            node("Unsqueeze", "number nil", "end"),
            node("Slice", "table nil end nil", "part"),
            node("ReduceSum", "part nil", "factor", keepdims=0),
            node("Mul", "x factor", "y"),
            half=np.array(0.5, np.float32), two=np.array(2), one=np.array(1), nil=[0], table=np.array([1, -1], np.float32),
        ),
        "'part' (Slice) takes a part or makes a size that depends on values",
    ),
    "rows chosen by value": (
        model(node("Compress", "x keep", "y", axis=0), keep=np.array([True, False])),
        "depends on values",
    ),
    "random numbers": (
        model(node("RandomNormalLike", "x", "noise"), node("Add", "x noise", "y")),
        "draws random numbers",
    ),
    "bounds in the wrong order": (
        model(node("Clip", "x high low", "y"), high=np.array(2, np.float32), low=np.array(-2, np.float32)),
        "a lower bound above its upper one",
    ),
    "a constant that is not a number": (
        model(node("Mul", "x nan", "y"), nan=np.array(np.nan, np.float32)),
        "holds NaN",
    ),
    "dropout in training mode": (
        model(node("Dropout", "x half yes", "y"), half=np.array(0.5, np.float32), yes=np.array(True)),
        "training mode",
    ),
    "a name used twice": (
        model(node("Neg", "x", "a"), node("Abs", "x", "a"), node("Neg", "a", "y")),
        "two values have the name 'a'",
    ),
    "an attribute that is there twice": (
        model(twice(node("Cast", "x", "half", to=10), to=FLOAT), node("Cast", "half", "y", to=FLOAT)),
        "'half' (Cast) has the attribute 'to' twice",
    ),
    "an attribute with two values": (
        model(two_values(node("Softmax", "x", "y", axis=1))),
        "'y' (Softmax) has the attribute 'axis' in a form",
    ),
    "weights that are there twice": (
        two_readings(model(node("Mul", "x w", "y"), w=np.array([1], np.float32)), 2.0),
        "the weights 'w' are there twice",
    ),
    "a dimension that the file says is fixed": (
        claims_rows(model(node("Abs", "x", "a"), node("Slice", "a one end nil", "y"), one=[1], end=[2**31 - 1], nil=[0])),
        "takes a part of a dynamic dimension",
    ),
    "another library's operator": (
        model(helper.make_node("Gelu", ["x"], ["y"], name="y", domain="com.microsoft")),
        "domain 'com.microsoft'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWO)
def test_a_graph_with_two_readings_is_rejected(name):
    made, words = TWO[name]
    with pytest.raises(BuildError) as rejected:
        checked(onnx.ModelProto.FromString(made.SerializeToString()))
    assert words in str(rejected.value)
    assert "\n" not in str(rejected.value) and len(str(rejected.value)) < 400


def test_functions_and_second_imports_are_rejected():
    made = model(node("Neg", "x", "y"))
    made.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    with pytest.raises(BuildError, match="exactly once"):
        checked(made)
    made = model(helper.make_node("F", ["x"], ["y"], name="y", domain="own"))
    made.functions.append(
        helper.make_function("own", "F", ["a"], ["b"], [node("Neg", "a", "b")], [helper.make_opsetid("", 17)])
    )
    with pytest.raises(BuildError, match="Inline them"):
        checked(made)


def test_a_constant_that_is_also_an_input_is_a_constant():
    """Otherwise a runner may take another value for it than the builder has seen."""
    made = model(node("Mul", "x two", "y"), two=np.array(2, np.float32))
    made.graph.input.append(helper.make_tensor_value_info("two", FLOAT, []))
    assert [info.name for info in checked(made).graph.input] == ["x"]


def test_every_node_gets_a_name_of_its_own():
    """Layers are counted by name, and a second node of the same name would hide the first."""
    made = model(node("Neg", "x", "a"), node("Neg", "a", "b"), node("Neg", "b", "y"))
    for one in made.graph.node[:2]:
        one.name = "same"
    made.graph.node[2].name = ""
    names = [one.name for one in checked(made).graph.node]
    assert len(set(names)) == 3 and all(names)


def test_a_new_name_is_nobodys():
    """Otherwise a node could be counted as another one, which has the name that the course gives."""
    made = model(node("Neg", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "y"))
    for one, name in zip(made.graph.node, ("w", "w", "w_2"), strict=True):
        one.name = name
    assert len({one.name for one in checked(made).graph.node}) == 3


def test_the_file_is_read_in_another_process(tmp_path: Path):
    path = tmp_path / "model.onnx"
    (tmp_path / "scratch").mkdir()
    path.write_bytes(HONEST["a scale made of a static size"].SerializeToString())
    found = one_graph.fixed(path, tmp_path / "scratch", Examiner())
    assert operators(onnx.load(found)) == ["Div"]
    assert len(onnx.load(path).graph.node) > 1, "a learner's own file stays as it is"
    path.write_bytes(TWO["random numbers"][0].SerializeToString())
    with pytest.raises(BuildError, match=r"model\.onnx: node 'noise'") as rejected:
        one_graph.fixed(path, tmp_path / "scratch", Examiner())
    assert rejected.value.code == TWO_READINGS
    path.write_bytes(b"nonsense")
    with pytest.raises(BuildError, match="not an ONNX model"):
        one_graph.fixed(path, tmp_path / "scratch", Examiner())


def test_a_constant_larger_than_memory_is_one_line(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(
        model(
            node("ConstantOfShape", "sizes", "ones"), node("Add", "x ones", "y"), sizes=[1 << 20, 1 << 20]
        ).SerializeToString()
    )
    with pytest.raises(BuildError) as rejected:
        one_graph.fixed(path, tmp_path, Examiner())
    assert "\n" not in str(rejected.value)


@pytest.mark.parametrize("where", ["initializer", "node"])
def test_float64_is_computed_in_float32_as_the_compiler_does(where: str, tmp_path: Path):
    """Beyond float32 the engine has infinity, so 1e300 / 1e300 must not be 1 for the runner."""
    big = np.array(1e300)
    constants = {"big": big} if where == "initializer" else {}
    made = [node("Constant", "", "big", value=numpy_helper.from_array(big))] if where == "node" else []
    nodes = [
        *made,
        node("Cast", "x", "wide", to=TensorProto.DOUBLE),
        node("Mul", "wide big", "up"),
        node("Div", "up big", "down"),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(model(*nodes, node("Cast", "down", "y", to=FLOAT), **constants), path)
    assert np.allclose(answers(onnx.load(path), X), X)
    (tmp_path / "scratch").mkdir()
    found = onnx.load(one_graph.fixed(path, tmp_path / "scratch", Examiner()))
    assert np.isnan(answers(found, X)).any()


def test_small_numbers_in_float64_survive(tmp_path: Path):
    half = numpy_helper.from_array(np.array(0.5), "half")
    nodes = [
        node("Cast", "x", "wide", to=TensorProto.DOUBLE),
        node("Mul", "wide half", "y64"),
        node("Cast", "y64", "y", to=FLOAT),
    ]
    made = model(*nodes)
    made.graph.initializer.append(half)
    path = tmp_path / "model.onnx"
    onnx.save(made, path)
    (tmp_path / "scratch").mkdir()
    assert np.allclose(answers(onnx.load(one_graph.fixed(path, tmp_path / "scratch", Examiner())), X), X / 2)


def test_many_equal_names_and_attributes_take_one_pass():
    """A cheat for the judge's time: each took a minute when every name was compared with all names before it."""
    nodes = [helper.make_node("Identity", ["x"], [f"dead{number}"], name="d") for number in range(30_000)]
    many = helper.make_node("Relu", ["x"], ["y"], name="y")
    many.attribute.extend(helper.make_attribute(f"own{number}", 1) for number in range(60_000))
    made = model(*nodes, node("Relu", "x", "y"))
    made.graph.node[5].name = "d_3"
    started = time.process_time()
    check_form(made)
    names = [one.name for one in made.graph.node]
    assert names[:4] == ["d", "d_2", "d_3", "d_4"] and len({*names}) == len(names)
    check_form(model(many))
    assert time.process_time() - started < 5


@pytest.mark.parametrize("name", ["mm + relu", "PWN(a, b)", "{ForeignNode[a...b]}", "a\nb", "a[b]"])
def test_a_node_cannot_look_like_several_in_the_name_of_a_layer(name: str) -> None:
    made = model(node("Relu", "x", "y"))
    made.graph.node[0].name = name
    check_form(made)
    assert re.fullmatch(r"[\w/.:-]+", made.graph.node[0].name) and ".." not in made.graph.node[0].name
    for kept in ("/block1/conv1/Conv", "node_linear.1", "a:0", "ÿ-2"):
        made.graph.node[0].name = kept
        check_form(made)
        assert made.graph.node[0].name == kept
