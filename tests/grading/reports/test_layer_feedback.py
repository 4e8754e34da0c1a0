"""A submission's layers beside the reference's, in words: hand-made tables, and the real reference of lab 01."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from course_lib import labs
from course_lib.engines import Layer, LayerTable, Plan
from course_lib.engines.layers import LayerTensor
from course_lib.grading.reports import layer_feedback
from course_lib.grading.reports.layer_feedback import compared, compared_with_reference
from course_lib.labs import Examiner
from course_lib.models import classifier, export_onnx
from course_lib.recipe import Profile, Recipe

OPERATORS = {"/a/Conv": "Conv", "/a/Relu": "Relu", "/b/Conv": "Conv", "/b/Relu": "Relu", "/head/Gemm": "Gemm"}


def kernel(*nodes: str, dtype: str = "Int8") -> Layer:
    tensor = LayerTensor("x", (1,), dtype)
    return Layer("+".join(nodes), "kernel", inputs=(tensor,), outputs=(tensor,), onnx_nodes=nodes)


def table(*kernels: Layer, operators: dict[str, str] = OPERATORS) -> LayerTable:
    return LayerTable(kernels, operators)


REFERENCE = table(kernel("/a/Conv", "/a/Relu"), kernel("/b/Conv", "/b/Relu"), kernel("/head/Gemm", dtype="Float"))


def test_what_stayed_wide_is_named():
    yours = table(
        kernel("/a/Conv", "/a/Relu", dtype="Float"),
        kernel("/b/Conv", "/b/Relu", dtype="Float"),
        kernel("/head/Gemm", dtype="Float"),
    )
    found = compared(yours, REFERENCE)
    assert found.sentences == (
        "Your engine has 3 kernels, as many as the reference.",
        "2 layers compute in FP32 where the reference does in INT8: /a/Conv, /b/Conv.",
        "2 operators between layers compute in FP32 where the reference does in INT8.",
    )
    assert [(one.layers, one.kernels, one.types) for one in found.differences] == [
        (("/a/Conv",), (1, 1), ("FP32", "INT8")),
        (("/b/Conv",), (1, 1), ("FP32", "INT8")),
    ]
    assert json.loads(json.dumps(asdict(found)))["kernels"] == [3, 3]


def test_what_was_taken_apart_is_counted():
    yours = table(*(kernel(node) for node in list(OPERATORS)[:4]), kernel("/head/Gemm", dtype="Float"))
    found = compared(yours, REFERENCE)
    assert found.sentences == (
        "Your engine has 5 kernels, 2 more than the reference.",
        "Apart in your engine, one kernel in the reference: Conv + Relu in 2 places.",
    )
    assert [one.kernels for one in found.differences] == [(2, 1), (2, 1)]


def test_fewer_kernels():
    found = compared(table(kernel(*list(OPERATORS)[:4]), kernel("/head/Gemm", dtype="Float")), REFERENCE)
    assert found.sentences[0] == "Your engine has 2 kernels, 1 fewer than the reference."
    assert "One kernel in your engine, apart in the reference: Conv + Relu + Conv + Relu in 1 place." in found.sentences


def test_nodes_of_the_reference_alone_are_never_named():
    reference = table(*REFERENCE, kernel("/secret/Mul"), operators={**OPERATORS, "/secret/Mul": "Mul"})
    yours = table(*REFERENCE, kernel("/mine/Transpose"), operators={**OPERATORS, "/mine/Transpose": "Transpose"})
    found = compared(yours, reference)
    assert "Only your graph has: 1 Transpose." in found.sentences
    assert "secret" not in json.dumps(asdict(found))
    assert [one.layers for one in found.differences] == [("/mine/Transpose",)]


def test_a_graph_with_names_of_its_own():
    renamed = {f"/x{name}": operator for name, operator in OPERATORS.items()}
    found = compared(table(*(kernel(name) for name in renamed), operators=renamed), REFERENCE)
    assert len(found.sentences) == 2 and "has other names for its layers" in found.sentences[1]


@pytest.mark.parametrize(("node", "other"), [("/b/Conv", "/b+norm/Conv"), ("/a/Relu", "relu_7")])
def test_a_node_with_another_name_is_not_a_difference(node, other):
    def renamed(name: str) -> str:
        return other if name == node else name

    kernels = (kernel(*map(renamed, one.onnx_nodes), dtype=one.inputs[0].dtype) for one in REFERENCE)
    yours = table(*kernels, operators={renamed(name): operator for name, operator in OPERATORS.items()})
    for pair in ((yours, REFERENCE), (REFERENCE, yours)):
        found = compared(*pair)
        assert found.sentences == ("Your engine has 3 kernels, as many as the reference.",) and found.differences == ()


def test_a_change_beside_a_node_with_another_name_is_a_difference():
    operators = {
        "/a/Conv": "Conv",
        "/a/Relu": "Relu",
        "/a/Cast": "Cast",
        "/b2/Conv": "Conv",
        "/b2/Relu": "Relu",
        "/head/Gemm": "Gemm",
    }
    yours = table(
        kernel("/a/Conv", "/a/Relu"),
        kernel("/b2/Conv", "/b2/Relu", dtype="Float"),
        kernel("/head/Gemm", dtype="Float"),
        operators=operators,
    )
    assert [(one.layers, one.types) for one in compared(yours, REFERENCE).differences] == [(("/b2/Conv",), ("FP32", "INT8"))]


def test_long_lists_are_cut():
    many = {f"/layer{n}/Conv": "Conv" for n in range(12)}
    wide, narrow = (table(*(kernel(name, dtype=dtype) for name in many), operators=many) for dtype in ("Float", "Half"))
    assert (
        compared(wide, narrow)
        .sentences[1]
        .startswith("12 layers compute in FP32 where the reference does in FP16: /layer0/Conv, ")
    )
    assert compared(wide, narrow).sentences[1].endswith("/layer5/Conv and 6 more.")


# ---- with the reference of a lab


@pytest.fixture(scope="module")
def half(tmp_path_factory) -> Plan:
    path = tmp_path_factory.mktemp("half") / "model.onnx"
    export_onnx(classifier("wide"), path, dtype="fp16")
    sizes = {"min": (1, 1, 32, 32), "opt": (1, 1, 32, 32), "max": (32, 1, 32, 32)}
    return Examiner().build(path, Recipe(precision="fp16", profiles=(Profile(image=sizes),)))


def test_half_precision_beside_lab_01s_reference(half):
    lab = labs.find("lab01")
    found = compared_with_reference(lab, half, Examiner())
    assert any("FP16 where the reference does in FP32" in sentence for sentence in found.sentences)
    assert all(layer in half.layers.operators for one in found.differences for layer in one.layers)
    layer_feedback._reference.cache_info()  # built once a process
    before = layer_feedback._reference.cache_info().misses
    assert compared_with_reference(lab, half, Examiner()) == found and layer_feedback._reference.cache_info().misses == before


def test_the_reference_does_not_differ_from_itself(tmp_path):
    """Its nodes have names such as conv2+norm2, which a submission's graph has only until it is examined."""
    lab, examiner = labs.find("lab01"), Examiner()
    lab.write_reference(tmp_path, opset=examiner.opset)
    plan = lab.examine(tmp_path, examiner, "profile").plan
    found = compared_with_reference(lab, plan, examiner)
    assert len(found.sentences) == 1 and found.differences == ()


def test_nothing_to_compare(half, monkeypatch):
    assert compared_with_reference(labs.find("lab10"), half, Examiner()) is None, "no model is handed in"
    bare = Plan(**{**vars(half), "layers": LayerTable()})
    assert compared_with_reference(labs.find("lab01"), bare, Examiner()) is None, "the builder tells no kernels"
    assert compared_with_reference(labs.find("lab01"), half, Examiner(builder="absent")) is None, (
        "the reference cannot be built"
    )
