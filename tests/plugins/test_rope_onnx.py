"""The custom node, and the standard operators that stand for it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from course_lib.plugins import expand_rope, rope, rope_model, rope_node, rope_on_host, rope_tables
from tests.plugins.rope_cases import Case, excess
from tests.sessions import run


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("head_size", [2, 64, 66])
def test_the_standard_operators_are_the_kernel(dtype: str, interleaved: bool, head_size: int) -> None:
    model = expand_rope(rope_model(3, head_size, max_sequence=40, dtype=dtype, interleaved=interleaved))
    onnx.checker.check_model(model, full_check=True)
    for batch, sequence in ((1, 1), (2, 17), (1, 40)):
        x = np.random.default_rng(sequence).standard_normal((batch, sequence, 3, head_size)).astype(dtype)
        case = Case(x, *rope_tables(40, head_size), interleaved)
        y = run(model, x)
        assert excess(y, case) <= 1
        assert np.array_equal(y, rope_on_host(x, case.cos, case.sin, interleaved=interleaved))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("opset", [15, 18, 21])
def test_a_model_of_another_operator_set(opset: int, interleaved: bool) -> None:
    model = rope_model(3, 64, max_sequence=40, interleaved=interleaved)
    model.opset_import[0].version = opset
    expanded = expand_rope(model)
    onnx.checker.check_model(expanded, full_check=True)
    x = np.random.default_rng(opset).standard_normal((2, 17, 3, 64)).astype(np.float32)
    assert np.array_equal(run(expanded, x), rope_on_host(x, *rope_tables(40, 64), interleaved=interleaved))


def test_the_custom_node_names_the_plugin() -> None:
    model = rope_model(4, 32, max_sequence=16, dtype="float16", interleaved=True)
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert (node.op_type, node.domain) == ("CourseRope", "course")
    assert attributes == {"interleaved": 1, "plugin_version": b"1", "plugin_namespace": b"course"}
    dims = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    assert dims == ["batch", "sequence", 4, 32]
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 17, "course": 1}
    assert not onnx.defs.has("CourseRope"), "the parser would prefer its own importer to the plugin"


def test_two_nodes_in_a_row_within_a_larger_model() -> None:
    """The type of the second node's input is known only when the first one is gone; what is around them stays."""
    model = rope_model(2, 8, max_sequence=9, dtype="float16")
    del model.graph.node[:]
    model.graph.node.extend(
        [
            helper.make_node("Neg", ["x"], ["negated"]),
            rope_node("negated", "cos", "sin", "once", name="first"),
            helper.make_node("Neg", ["once"], ["back"]),
            rope_node("back", "cos", "sin", "y", interleaved=True, name="second"),
        ]
    )
    before = model.SerializeToString()
    expanded = expand_rope(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(expanded, full_check=True)
    assert [n.op_type for n in expanded.graph.node].count("Neg") == 2 and not any(n.domain for n in expanded.graph.node)
    x = np.random.default_rng(8).standard_normal((3, 9, 2, 8)).astype(np.float16)
    tables = rope_tables(9, 8)
    want = rope(rope(x, *tables).astype(np.float16), *tables, interleaved=True)
    assert np.abs(run(expanded, x) - want).max() < 4e-3
    assert expanded.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT16
