"""The layer tables that NVIDIA's compilers print are read as they are, and no text whatsoever breaks the readers."""

from __future__ import annotations

import json
import os
import time
from html import escape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.engines import Layer, LayerTable, LayerTensor, Plan
from course_lib.engines.backends.tensorrt import builder
from course_lib.engines.backends.tensorrt.layer_sources import parse_build_log, parse_inspector
from course_lib.engines.layers import HOST_KINDS, PROOF
from course_lib.engines.registry import compile_plan
from course_lib.errors import BuildError, PrecisionError
from course_lib.style import breakable_html

DATA = Path(__file__).parents[1] / "data"
LOG = (DATA / "tensorrt_rtx_small_fp16.log").read_text(encoding="utf-8")
INSPECTED = (DATA / "tensorrt86_resnet50_int8.json").read_text(encoding="utf-8")
EXAMPLES = int(os.environ.get("COURSE_FUZZ_EXAMPLES", "350"))  # for each of six tests


def test_a_recorded_build_log() -> None:
    table = parse_build_log(LOG, {"/stem/Conv": "Conv", "/Relu": "Relu"})
    assert [layer.kind for layer in table] == ["shape_call", "kgen", "correlation", "kgen", "runtime_fusion"]
    host, cast, conv, mean, head = table
    assert not host.is_kernel and table.kernels == (cast, conv, mean, head)
    assert conv.name == "/stem/Conv_myl0_2" and conv.tactic == "__myelin_CASK_STUB"
    assert conv.inputs == (LayerTensor("/Relu_output_0.1_10_myl0", (-1, 2, 32, 32), "Half", "NHWC"),)
    assert [constant.shape for constant in conv.constants] == [(16, 2, 3, 3), (1,), (1,), (1, 16, 1, 1)]
    assert {constant.dtype for constant in conv.constants} == {"Half", "Float"}
    assert conv.dtypes == {"Half"}, "its Float constants are scalars"
    assert cast.dtypes == {"Float"}
    assert conv.onnx_nodes == ("/stem/Conv", "/Relu") and table.fused_operators(conv) == "Conv + Relu"
    assert head.outputs == (LayerTensor("logits", (-1, 10), "Float", "Linear"),)
    assert head.onnx_nodes == ("/head/Gemm", "/Cast_1") and table.fused_operators(head) == "/head/Gemm + /Cast_1"


def test_a_fresh_build_log(small_plan: Plan) -> None:
    table = small_plan.layers
    assert len(table.kernels) == 13 and len(table) > 13, "the host's steps are in the table, and are not kernels"
    assert all(kernel.name and kernel.inputs and kernel.outputs and kernel.dtypes == {"Float"} for kernel in table.kernels)
    assert table.kernels[0].inputs[0].name == "image" and table.kernels[-1].outputs[0].name == "logits"
    assert table.kernels[-1].outputs[0].shape == (-1, 10)
    assert {node for kernel in table for node in kernel.onnx_nodes} <= table.operators.keys()


def test_a_step_on_the_host_does_not_end_the_table() -> None:
    """A graph can put one in front of all kernels: a table that ended there would prove any precision."""
    step = "Name: [ShapeHostToDeviceCopy 0], LayerType: ShapeHostToDevice, Inputs: [], Outputs: [], ParameterType: Copy\n"
    head, _, rows = LOG.rpartition("Layers:\n")
    first = parse_build_log(f"{head}Layers:\n{step}{rows}")
    assert [layer.kind for layer in first[:2]] == ["ShapeHostToDevice", "shape_call"] and first[1:] == parse_build_log(LOG)[:]
    assert first.kernels == parse_build_log(LOG).kernels


def test_an_engine_without_a_listed_kernel_is_rejected(monkeypatch, small_onnx, service_recipe) -> None:
    monkeypatch.setattr(builder, "parse_build_log", lambda text, operators: LayerTable((), operators))
    with pytest.raises(BuildError, match="lists no kernel"):
        compile_plan("tensorrt_rtx", small_onnx, service_recipe.wire())


def test_only_the_last_section_of_a_log_counts() -> None:
    forged = LOG.replace("Datatype: Float", "Datatype: Half")
    assert parse_build_log(forged + "\nEngine Metadata:\n" + LOG) == parse_build_log(LOG)
    assert parse_build_log("no such section").layers == ()


def test_a_recorded_inspection_by_tensorrt_8_6() -> None:
    with pytest.raises(ValueError, match="control character"):
        json.loads(INSPECTED)
    table = parse_inspector(INSPECTED)
    assert len(table) == 17 and len(table.kernels) == 16
    reformat, first, conv = table[:3]
    assert reformat.kind == "Reformat" and reformat.onnx_nodes == ()
    assert first.onnx_nodes == ("/conv1/Conv", "/relu/Relu", "/maxpool/MaxPool")
    assert conv.kind == "CaskConvolution" and conv.tactic.startswith("sm")
    assert conv.constants == (LayerTensor("weights", (4096,), "Int8"),)
    assert conv.inputs[0].shape == (-1, 64, 56, 56)
    assert conv.inputs[0].dtype == conv.inputs[0].format == "", "unknown for dynamic shapes"
    assert conv.onnx_nodes == ("/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/relu/Relu")
    assert table.dtype_counts() == {"Int8": 13}
    table.check_precision("int8")
    with pytest.raises(PrecisionError):
        table.check_precision("fp16")


def _inspected(**fields: Any) -> Layer:
    return parse_inspector(json.dumps({"Layers": [fields], "Bindings": []}))[0]


@pytest.mark.parametrize(
    ("described", "dtype"),
    [
        ("Row major linear FP32", "Float"),
        ("Channel major FP16 format where channel % 8 == 0", "Half"),
        ("Thirty-two wide channel vectorized row major Int8 format", "Int8"),
        ("Row major linear INT32", "Int32"),
        ("Row major linear BF16", "BFloat16"),
        ("Row major linear BOOL", "Bool"),
        ("N/A due to dynamic shapes", ""),
    ],
)
def test_datatypes_inside_a_format_as_8_6_spells_them(described: str, dtype: str) -> None:
    tensor = {"Name": "x", "Location": "Device", "Dimensions": [1, 3, 8, 8], "Format/Datatype": described}
    assert _inspected(Name="conv", LayerType="CaskConvolution", Inputs=[tensor]).inputs[0].dtype == dtype


def test_names_serve_where_8_6_has_no_metadata() -> None:
    assert _inspected(Name="/conv/Conv + /relu/Relu", LayerType="CaskConvolution").onnx_nodes == ("/conv/Conv", "/relu/Relu")
    assert _inspected(Name="PWN(/a/Relu)", LayerType="PointWiseV2").onnx_nodes == ("/a/Relu",)
    nested = _inspected(Name="/a/Conv + PWN(PWN(/b/Sigmoid), /b/Mul)", LayerType="CaskConvolution")
    assert nested.onnx_nodes == ("/a/Conv", "/b/Sigmoid", "/b/Mul")
    merged = _inspected(Name="/c/Conv || /d/Conv", LayerType="CaskConvolution")
    assert merged.onnx_nodes == ("/c/Conv", "/d/Conv")
    assert _inspected(Name="Reformatting CopyNode for /a/Relu", LayerType="Reformat").onnx_nodes == ()


def test_a_network_that_myelin_fused_whole_names_no_node_that_does_not_exist() -> None:
    name = "{ForeignNode[onnx::MatMul_1071 + (Unnamed Layer* 58) [Shuffle]...(Unnamed Layer* 1331) [Normalization]]}"
    layer = _inspected(Name=name, LayerType="Myelin", TacticValue="0x0000000000000000", StreamId=0, Metadata="")
    assert layer.is_kernel and layer.name == name
    assert not any("ForeignNode" in node for node in layer.onnx_nodes)


def test_the_keys_of_tensorrt_10() -> None:
    layer = _inspected(
        Name="/stem/Conv + /Relu_myl0_2",
        LayerType="correlation",
        Inputs=[{"Name": "x", "Dimensions": [-1, 3, 8, 8], "Datatype": "Half", "Format": "Channel major FP16"}],
        Constants=[],
        Outputs=[{"Name": "y", "Dimensions": [-1, 16, 8, 8], "Datatype": "BFloat16", "Format": "Linear"}],
        TacticName="sm89_xmma_fprop",
        StreamId=0,
        Metadata="[ONNX Layer: /stem/Conv]\x1e[ONNX Layer: /Relu]",
    )
    assert layer.inputs == (LayerTensor("x", (-1, 3, 8, 8), "Half", "Channel major FP16"),)
    assert layer.outputs[0].dtype == "BFloat16" and layer.dtypes == {"Half"}
    assert layer.tactic == "sm89_xmma_fprop" and layer.onnx_nodes == ("/stem/Conv", "/Relu")


def _kernel(*dtypes: str, kind: str = "kgen", **fields: Any) -> Layer:
    return Layer("k", kind, inputs=tuple(LayerTensor("x", (1,), dtype) for dtype in dtypes), **fields)


TABLES = {  # kernels, and the precisions that they prove
    "all Float": ([_kernel("Float"), _kernel("Float")], {"fp32"}),
    "all Half": ([_kernel("Half")], {"fp16"}),
    "Half between Float borders": ([_kernel("Float"), _kernel("Half"), _kernel("Float", "Half")], {"fp16"}),
    "all BFloat16": ([_kernel("BFloat16")], {"bf16"}),
    "Int8 with Float around": ([_kernel("Float"), _kernel("Int8")], {"int8"}),
    "Int8 and Half": ([_kernel("Half"), _kernel("Int8")], {"int8", "fp16"}),
    "FP8 and BFloat16": ([_kernel("FP8"), _kernel("BFloat16")], {"fp8", "bf16"}),
    "Float with indices": ([_kernel("Float", "Int64"), _kernel("Int32"), _kernel("Bool")], {"fp32"}),
    "weights tell": ([Layer("k", "conv", constants=(LayerTensor("weights", (9,), "Half"),))], {"fp16"}),
    "scalars do not tell": ([_kernel("Half", constants=(LayerTensor("scale", (1,), "Float"),))], {"fp16"}),
    "outputs do not tell": ([_kernel("Float", outputs=(LayerTensor("y", (1,), "Half"),))], {"fp32"}),
    "nothing is told": ([_kernel(""), _kernel()], set(PROOF)),
    "no layers": ([], set(PROOF)),
}


@pytest.mark.parametrize("precision", PROOF)
@pytest.mark.parametrize("what", TABLES)
def test_precision_is_proved_on_the_kernels(what: str, precision: str) -> None:
    kernels, proved = TABLES[what]
    table = LayerTable(tuple(kernels))
    if precision in proved:
        table.check_precision(precision)
        return
    with pytest.raises(PrecisionError, match=f"the recipe says {precision}") as raised:
        table.check_precision(precision)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("kind", sorted(HOST_KINDS))
def test_steps_on_the_host_prove_nothing(kind: str) -> None:
    LayerTable((_kernel("Float"), _kernel("Half", kind=kind))).check_precision("fp32")
    with pytest.raises(PrecisionError):
        LayerTable((_kernel("Float"), _kernel("Half", kind=kind))).check_precision("fp16")


def test_a_table_is_a_sequence_that_is_counted_and_drawn() -> None:
    table = LayerTable((_kernel("Float", "Half", outputs=(LayerTensor("y", (-1, 3), "Half", "NHWC"),)), _kernel(kind="wait")))
    assert len(table) == 2 and table[0].kind == "kgen" and [layer.kind for layer in table] == ["kgen", "wait"]
    assert table.dtype_counts() == {"Float": 1, "Half": 1}
    (row,) = table.rows()
    assert row["reads"] == "Float, Half" and row["writes"] == "Half" and row["shape"] == "Nx3" and row["format"] == "NHWC"
    assert "<script>" not in LayerTable((Layer("<script>", "kgen"),))._repr_html_()
    assert "No layer table" in LayerTable()._repr_html_()


def test_a_long_kernel_name_breaks_between_its_parts_and_stays_the_same_text() -> None:
    name = "__myl_MulAddMulMinMaxRounCastCastMulMulAddAddMoveReluMeanMulMinMaxRounCast_myl0_25</b>"
    html = LayerTable((Layer(name, "kgen"),))._repr_html_()
    parts = breakable_html(name).split("<wbr>")
    assert breakable_html(name) in html and escape(name) == "".join(parts) and max(map(len, parts)) <= 10


tensors = st.builds(LayerTensor, st.text(), st.lists(st.integers(-1, 2**31)).map(tuple), st.text(), st.text())
some = st.lists(tensors, max_size=3).map(tuple)
layers = st.builds(Layer, st.text(), st.text(), some, some, some, st.text(), st.lists(st.text()).map(tuple))
tables = st.builds(LayerTable, st.lists(layers, max_size=4).map(tuple), st.dictionaries(st.text(), st.text(), max_size=3))


@given(tables)
def test_json_gives_the_table_back(table: LayerTable) -> None:
    assert LayerTable.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_json_gives_a_real_table_back(small_plan: Plan) -> None:
    assert LayerTable.from_json(json.loads(json.dumps(small_plan.layers.to_json()))) == small_plan.layers


LOG_PARTS = [
    "Layers:\n",
    "Name: ",
    ", LayerType: ",
    ", Inputs: [ { Name: ",
    "}], Constants: [",
    "], Outputs: [",
    ", Metadata: ",
]
TENSOR_PARTS = [
    "[ONNX Layer: ",
    "\x1e",
    "\n",
    "\u2028",
    "}, {",
    ", Dimensions: [-",
    "], Strides: [",
    ", Datatype: ",
    ", Format: (",
]
JSON_PARTS = [
    '"',
    "{",
    "}",
    "[",
    "]",
    "null",
    "-1",
    "1e999",
    '{"Layers": [',
    '"Inputs": ',
    '"Dimensions": [[]]',
    "\\ud800",
    "\x00",
]
FRAGMENTS = st.text(max_size=20) | st.sampled_from([*LOG_PARTS, *TENSOR_PARTS, *JSON_PARTS])
EDITS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 60), FRAGMENTS), min_size=1, max_size=8)


def _mutated(text: str, edits: list[tuple[int, int, str]]) -> str:
    for place, cut, fragment in edits:
        start = place % (len(text) + 1)
        text = text[:start] + fragment + text[start + cut :]
    return text


def _read(text: str) -> None:
    """Either reader makes a table of it whose every use works."""
    for table in (parse_build_log(text), parse_inspector(text)):
        table.rows()
        table.dtype_counts()
        json.dumps(table.to_json())
        assert all(isinstance(n, int) for layer in table for tensor in layer.inputs for n in tensor.shape)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text())
def test_any_text_is_read(text: str) -> None:
    _read(text)
    _read("Layers:\n" + text)
    _read("Layers:\nName: " + text)


KEYS = ["Layers", "Name", "LayerType", "Inputs", "Outputs", "Dimensions", "Datatype", "Weights", "Type", "Count", "Metadata"]
keys = st.text(max_size=3) | st.sampled_from(KEYS)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=20
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(values)
def test_any_json_is_read(value: Any) -> None:
    _read(json.dumps(value))
    _read(json.dumps({"Layers": value}))
    _read(json.dumps({"Layers": [value]}))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, len(LOG)), st.integers(0, len(LOG)))
def test_any_part_of_a_real_log_is_read(start: int, end: int) -> None:
    _read(LOG[:end])
    _read("Layers:\n" + LOG[start:end])


@settings(max_examples=EXAMPLES, deadline=None)
@given(EDITS)
def test_any_mutation_of_a_real_log_is_read(edits: list[tuple[int, int, str]]) -> None:
    _read(_mutated(LOG, edits))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, len(INSPECTED)))
def test_any_part_of_a_real_inspection_is_read(end: int) -> None:
    _read(INSPECTED[:end])


@settings(max_examples=EXAMPLES, deadline=None)
@given(EDITS)
def test_any_mutation_of_a_real_inspection_is_read(edits: list[tuple[int, int, str]]) -> None:
    _read(_mutated(INSPECTED, edits))


@pytest.mark.parametrize(
    "text",
    [
        "Layers:\n" + "Name: " * 400_000,
        "Layers:\nName: a" + ", LayerType: , Inputs: [" * 100_000,
        "Layers:\nName: a, LayerType: b, Inputs: [" + " { Name: x, Dimensions: [" * 100_000,
        LOG.split("[ONNX Layer: ")[0] + "[ONNX Layer: " * 150_000,
        "[" * 1_000_000,
        '{"Layers": [{"Name": "' + "PWN(" * 400_000 + '"}]}',
        "1" * 100_000,
    ],
    ids=["names", "types", "tensors", "nodes", "brackets", "pointwise", "digits"],
)
def test_megabytes_made_to_be_slow_are_read_at_once(text: str) -> None:
    started = time.monotonic()
    _read(text)
    assert time.monotonic() - started < 5
