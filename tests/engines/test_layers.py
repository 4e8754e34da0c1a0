"""The layer tables that NVIDIA's compilers print are read as they are, and no text whatsoever breaks the readers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.lib.pretty import pretty

from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.engines.backends.tensorrt import builder
from course_lib.engines.backends.tensorrt.layer_sources import parse_build_log, parse_inspector
from course_lib.engines.layers import PROOF, dtype_name
from course_lib.engines.registry import compile_plan
from course_lib.errors import BuildError, PrecisionError, ProfileError
from course_lib.recipe import Recipe
from tests.one_line import one_line

DATA = Path(__file__).parents[1] / "data"
LOG = (DATA / "tensorrt_rtx_small_fp16.log").read_text(encoding="utf-8")
INSPECTED = (DATA / "tensorrt86_resnet50_int8.json").read_text(encoding="utf-8")


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
    assert table.dtype_counts() == {"Int8": 14}
    table.check_precision("int8")
    with pytest.raises(PrecisionError):
        table.check_precision("fp16")


def _inspected(**fields: Any) -> Layer:
    return parse_inspector(json.dumps({"Layers": [fields], "Bindings": []}))[0]


WITH_FORMAT = {  # a format and a datatype in one text
    "Row major linear FP32": "Float",
    "Row major linear FP32 format": "Float",
    "Channel major FP32 format where channel % 4 == 0 with 3 spatial dimensions": "Float",
    "Channel major FP16 format where channel % 8 == 0": "Half",
    "Two wide channel vectorized row major FP16 format": "Half",
    "Row major linear BFloat16 format": "BFloat16",
    "Row major linear BF16": "BFloat16",
    "Thirty-two wide channel vectorized row major Int8 format": "Int8",
    "Channel major INT8 format where channel == 4 and column stride % 32 == 0": "Int8",
    "Row major linear FP8 format": "FP8",
    "Row major linear FP4E2M1 format": "FP4",
    "Row major linear Int4": "Int4",
    "Row major linear INT32": "Int32",
    "Row major linear Int64 format": "Int64",
    "Row major linear BOOL": "Bool",
    "Channel major UInt8 format": "UInt8",
}
ALONE = {  # what TensorRT 10 and 11 write for Myelin's layers, and for all layers without an execution context
    **{
        word: word
        for word in ("Float", "Half", "BFloat16", "Int8", "FP8", "FP4", "Int4", "Int32", "Int64", "Bool", "UInt8", "Double")
    },
    "FP8E4M3": "FP8",
    "FP4E2M1": "FP4",
    "BF16": "BFloat16",
    "N/A due to dynamic shapes": "",
    "Unknown format": "",
    "None": "",
}


@pytest.mark.parametrize(("described", "dtype"), [*WITH_FORMAT.items(), *ALONE.items()])
def test_datatypes_as_all_versions_spell_them(described: str, dtype: str) -> None:
    tensor = {"Name": "x", "Location": "Device", "Dimensions": [1, 3, 8, 8], "Format/Datatype": described}
    read = _inspected(Name="conv", LayerType="CaskConvolution", Inputs=[tensor]).inputs[0]
    assert (read.dtype, read.format) == (dtype, described if described in WITH_FORMAT else "")
    line = (
        f"Name: k, LayerType: kgen, Inputs: [ {{ Name: x, Dimensions: [1,3,8,8], Format/Datatype: {described} }}], Outputs: []"
    )
    assert parse_build_log(f"Layers:\n{line}\n")[0].inputs == (read,)


@pytest.mark.parametrize("word", ["Quarter", "FP6", "Row major linear Quarter format", "Format 17"])
def test_a_kernel_with_an_unknown_datatype_proves_nothing_and_is_named(word: str) -> None:
    tensors = [{"Name": "x", "Dimensions": [8], "Format/Datatype": described} for described in (word, "Half")]
    rows = [{"Name": f"k{index}", "LayerType": "kgen", "Inputs": [tensor]} for index, tensor in enumerate(tensors)]
    table = parse_inspector(json.dumps({"Layers": rows}))
    for precision in PROOF:
        with pytest.raises(PrecisionError, match=f"datatype '{word}' of kernel k0 is unknown"):
            table.check_precision(precision)


# One engine as three versions print it; names and numbers are ours. TensorRT 10.0 lists constants of Myelin's layers among the
# inputs, later versions do not.
OLD_GEMM = (
    "Name: /head/Gemm_myl2_1, LayerType: gemm, Inputs: [ {{ Name: mean'.1_4, Dimensions: [1,64], Format/Datatype: {0} }}, {{ Name: "
    "__mye59_dconst, Dimensions: [64,10], Format/Datatype: {0} }}, {{ Name: __mye57/head/Gemm_alpha, Dimensions: [1], "
    "Format/Datatype: Float }}, {{ Name: head_bias _ ONNXTRT_Broadcast_6_constant{0}, Dimensions: [1,10], Format/Datatype: {0} }}], "
    "Outputs: [ {{ Name: logits, Dimensions: [1,10], Format/Datatype: {0} }}], TacticName: sm80_xmma_gemm_0, StreamId: 0, Metadata: "
    "[ONNX Layer: /head/Gemm]"
)
GEMM = (
    "Name: /head/Gemm_myl2_1, LayerType: gemm, Inputs: [ {{ Name: mean.1_4_myl2, Dimensions: [-1,64], Format/Datatype: {0} }}], Outputs: "
    "[ {{ Name: logits, Dimensions: [-1,10], Format/Datatype: {0} }}], TacticName: sm90_xmma_gemm_0, StreamId: 0, Metadata: [ONNX Layer: "
    "/head/Gemm][ONNX Layer: /Softmax]"
)
CONVOLUTION = (
    "Name: /stem/Conv + /Relu, LayerType: CaskConvolution, Inputs: [ {{ Name: image, Location: Device, Dimensions: [1,3,8,8], "
    "Format/Datatype: {0} }}], Outputs: [ {{ Name: /Relu_output_0, Location: Device, Dimensions: [1,16,8,8], Format/Datatype: {0} }}], "
    'ParameterType: Convolution, Kernel: [3,3], Weights: {{"Type": "{0}", "Count": 432}}, Bias: {{"Type": "Float", "Count": 16}}, '
    "Activation: RELU, TacticName: sm80_xmma_fprop_0, TacticValue: 0x5b8b, StreamId: 0, Metadata: [ONNX Layer: /stem/Conv]"
    "[ONNX Layer: /Relu]"
)
SHAPES = "Name: __mye260_0_myl2_0, LayerType: shape_call, Inputs: [], Outputs: [], TacticName: , StreamId: 0, Metadata: "
NODES = {"/stem/Conv": "Conv", "/Relu": "Relu", "/head/Gemm": "Gemm", "/Softmax": "Softmax"}


def _log(*lines: str, dtype: str = "Half", prefix: str = "") -> str:
    return f"{prefix}Layers:\n" + "\n".join(line.format(dtype) for line in lines) + "\n\nBindings:\nimage\nlogits\n[I] done\n"


@pytest.mark.parametrize("dtype", ["Float", "Half", "BFloat16", "Int8", "FP8"])
@pytest.mark.parametrize("gemm", [OLD_GEMM, GEMM])
def test_logs_of_tensorrt_10_prove_one_precision(gemm: str, dtype: str) -> None:
    table = parse_build_log(_log(CONVOLUTION, SHAPES, gemm, dtype=dtype, prefix="[07/07/2026-06:12:46] [TRT] [V] "), NODES)
    assert [(layer.kind, layer.is_kernel) for layer in table] == [
        ("CaskConvolution", True),
        ("shape_call", False),
        ("gemm", True),
    ]
    assert all(kernel.dtypes == {dtype} for kernel in table.kernels), "scalars in Float and the bias do not count"
    convolution, _, head = table
    assert convolution.weights == (LayerTensor("weights", (432,), dtype),) and convolution.tactic == "sm80_xmma_fprop_0"
    assert convolution.onnx_nodes == ("/stem/Conv", "/Relu") and convolution.inputs[0].name == "image"
    assert (
        len(head.inputs) == 1
        and head.inputs[0].shape[-1] == 64
        and head.outputs == (LayerTensor("logits", head.outputs[0].shape, dtype),)
    )
    for precision, word in PROOF.items():
        if word == dtype:
            table.check_precision(precision)
        else:
            with pytest.raises(PrecisionError):
                table.check_precision(precision)


def test_information_with_only_names_says_how_to_get_details() -> None:
    with pytest.raises(ProfileError, match="detailed profiling verbosity"):
        parse_inspector('{"Layers": ["Conv_0 + Relu_1", "MaxPool_2"], "Bindings": ["x", "y"]}')


def _kernel(*dtypes: str, kind: str = "kgen", **fields: Any) -> Layer:
    return Layer("k", kind, inputs=tuple(LayerTensor("x", (1,), dtype) for dtype in dtypes), **fields)


def _coverage(counted: int, whole: int, *more: Layer) -> LayerTable:
    kernels = tuple(_kernel("Int8" if index < counted else "Half", onnx_nodes=(f"c{index}",)) for index in range(whole))
    operators = {f"c{index}": "Conv" for index in range(whole)} | {"q": "QuantizeLinear"}
    return LayerTable(tuple(replace(kernel, kind="correlation") for kernel in kernels) + more, operators)


FUSED_APART = [_kernel("Float", onnx_nodes=(f"c{index}",)) for index in range(3)]
CONVERSIONS = [_kernel("Half", onnx_nodes=("q",)), _kernel("Half", kind="Reformat")]


@pytest.mark.parametrize(
    ("table", "precision", "note"),
    [
        (_coverage(1, 38), "int8", "only 1 of 38 multiplications (convolutions and matrix products) compute in INT8"),
        (LayerTable(_coverage(1, 38).layers), "int8", "only 1 of 38 kernels compute in INT8"),
        (_coverage(0, 10, _kernel("Int8", onnx_nodes=("c9",))), "int8", "only 0 of 10 "),  # generated: it only quantizes
        (_coverage(37, 38), "int8", ""),
        (_coverage(1, 38), "fp16", ""),
        (_coverage(1, 38), "fp32", ""),
        (LayerTable(), "int8", ""),
        (
            _coverage(10, 10, *FUSED_APART), "int8",
            "fusions are taken apart, 3 of 10 multiplications are spread over several kernels, of 13 kernels in all",
        ),
        (_coverage(20, 20, *FUSED_APART), "int8", ""),
        (_coverage(4, 4, *CONVERSIONS), "int8", "2 kernels only convert numbers or formats, of 6 kernels in all"),
        (_coverage(9, 9, *CONVERSIONS), "int8", ""),
    ],
)  # fmt: skip
def test_what_a_precision_leaves_out_is_noted(table: LayerTable, precision: str, note: str) -> None:
    assert [found[: len(note)] for found in table.precision_notes(precision)] == ([note] if note else [])


@pytest.mark.parametrize(
    ("name", "kind", "nodes"),
    [
        ("/conv/Conv + /relu/Relu", "CaskConvolution", ("/conv/Conv", "/relu/Relu")),
        ("PWN(/a/Relu)", "PointWiseV2", ("/a/Relu",)),
        ("/a/Conv + PWN(PWN(/b/Sigmoid), /b/Mul)", "CaskConvolution", ("/a/Conv", "/b/Sigmoid", "/b/Mul")),
        ("/c/Conv || /d/Conv", "CaskConvolution", ("/c/Conv", "/d/Conv")),
        ("Reformatting CopyNode for /a/Relu", "Reformat", ()),
    ],
)
def test_names_serve_where_8_6_has_no_metadata(name: str, kind: str, nodes: tuple[str, ...]) -> None:
    assert _inspected(Name=name, LayerType=kind).onnx_nodes == nodes


def test_names_of_datatypes_and_kernels() -> None:
    names = {"Half": "FP16", "BFloat16": "BF16", "UInt8": "UINT8", "FP4": "FP4", "": ""}
    assert [dtype_name(dtype) for dtype in names] == list(names.values())
    names = {"__myl_MulAdd_myl0_3": "MulAdd", "/stem/Conv_myl12_40": "/stem/Conv", "conv1 + relu": "conv1 + relu"}
    assert [Layer(name, "kgen").short_name for name in names] == list(names.values())
    name = "[CONVOLUTION]-[aten_ops.convolution.default]-[/features/0/convolution] + [RELU]-[aten_ops.relu]"
    (layer,) = parse_build_log(_log(CONVOLUTION.replace("/stem/Conv + /Relu", name)))  # as Torch-TensorRT calls them
    assert (layer.name, layer.dtypes) == (name, {"Half"})


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
    "images as bytes": ([_kernel("UInt8")], {"fp32"}),
    "integers only": ([_kernel("Int64"), _kernel("Int32"), _kernel("Bool")], {"fp32"}),
    "a type smaller than any recipe's": ([_kernel("Float"), _kernel("FP4"), _kernel("Half")], {"fp16"}),
    "nothing is reported": ([_kernel(""), _kernel()], set()),
    "no layers": ([], set()),
    "an unknown word": ([_kernel("Half"), _kernel("Quarter")], set()),
}


@pytest.mark.parametrize("what", TABLES)
def test_precision_is_proved_on_the_kernels(what: str) -> None:
    kernels, proved = TABLES[what]
    table = LayerTable(tuple(kernels))
    for precision in PROOF:
        if precision in proved:
            table.check_precision(precision)
        else:
            with one_line(PrecisionError, f"the recipe says {precision}"):
                table.check_precision(precision)


def _generated(name: str, reads: tuple[str, ...], writes: str, **fields: Any) -> Layer:
    inputs = tuple(LayerTensor("x", (8,), dtype) for dtype in reads)
    return Layer(f"__myl_{name}_myl0_1", "kgen", inputs, outputs=(LayerTensor("y", (8,), writes),), **fields)


WIDENED = {  # kernels that read a smaller type, and whether they compute in a wider one
    "a picture as INT8, cast and scaled": (_generated("CastMul", ("Int8",), "Float"), True),
    "halves, transposed and cast": (_generated("TranCastExp", ("Half",), "Float"), True),
    "halves that are only moved": (_generated("TranResh", ("Half",), "Half"), True),
    "halves that a copy casts": (replace(_generated("", ("Half",), "Float"), name="copy", kind="Reformat"), True),
    "added as halves, then cast": (_generated("MoveAddCast", ("Half",), "Float"), False),
    "cast to halves, added, cast back": (_generated("CastAddCast", ("Float", "Half"), "Float"), False),
    "cast to halves and kept": (_generated("CastAdd", ("Float", "Half"), "Half"), False),
    "with weights that are halves": (
        _generated("CastMul", ("Float",), "Float", constants=(LayerTensor("w", (9,), "Half"),)),
        False,
    ),
    "a product without a telling name": (replace(_generated("", ("Half",), "Float"), name="mm", kind="gemm"), False),
}


@pytest.mark.parametrize("what", WIDENED)
def test_fp32_means_that_nothing_smaller_computes(what: str) -> None:
    kernel, is_wide = WIDENED[what]
    table = LayerTable((kernel, _kernel("Float")))
    if is_wide:
        table.check_precision("fp32")
        return
    with pytest.raises(PrecisionError, match="1 of 2 kernels compute in a smaller type"):
        table.check_precision("fp32")


def test_the_graph_says_what_a_kernel_does() -> None:
    kernel = Layer(
        "k", "kgen", (LayerTensor("x", (8,), "Half"),), onnx_nodes=("b", "a"), outputs=(LayerTensor("y", (8,), "Float"),)
    )
    LayerTable((kernel,), {"a": "Cast", "b": "Exp"}).check_precision("fp32")
    with pytest.raises(PrecisionError):
        LayerTable((kernel,), {"b": "Exp", "a": "Cast"}).check_precision("fp32")


@pytest.mark.parametrize("read", ["UINT8", "INT8", "FLOAT16"])
def test_numbers_that_are_cast_before_they_are_used_build_as_fp32(read: str, tmp_path: Path) -> None:
    graph = onnx.parser.parse_graph(
        f"g ({read.lower()}[1,8] x) => (float[1,8] y) <float s = {{0.5}}> {{ c = Cast<to=1>(x) y = Mul(c, s) }}"
    )
    for node in graph.node:
        node.name = node.op_type
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "cast.onnx")
    (kernel,) = compile_plan("tensorrt_rtx", tmp_path / "cast.onnx", Recipe().wire()).layers.kernels
    assert kernel.dtypes != {"Float"}


tensors = st.builds(LayerTensor, st.text(), st.lists(st.integers(-1, 2**31)).map(tuple), st.text(), st.text())
some = st.lists(tensors, max_size=3).map(tuple)
layers = st.builds(Layer, st.text(), st.text(), some, some, some, st.text(), st.lists(st.text()).map(tuple))
tables = st.builds(LayerTable, st.lists(layers, max_size=4).map(tuple), st.dictionaries(st.text(), st.text(), max_size=3))


@given(tables)
def test_json_gives_the_table_back(table: LayerTable) -> None:
    assert LayerTable.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_words_that_the_compiler_shortened_are_explained() -> None:
    names = ("__myl_Move_myl0_0", "__myl_FcAddTran_myl0_1", "/Move/Conv", "__myl_Mean_myl0_2")
    table = LayerTable(tuple(Layer(name, "kgen") for name in names))
    legend = "in kernel names: Fc = fully connected layer, Move = copy to another memory layout, Tran = transpose"
    assert legend in str(table) and legend in table._repr_html_()
    assert "in kernel names" not in LayerTable(table.layers[2:]).caption()


def test_a_table_is_readable_as_text() -> None:
    read, written = LayerTensor("x", (-1, 3, 8, 8), "Int8"), LayerTensor("y", (-1, 4, 8, 8), "Half")
    table = LayerTable(
        (Layer("k" * 60, "conv", (read,), outputs=(written,), onnx_nodes=("/c/Conv", "/r/Relu")), Layer("s", "signal")),
        {"/c/Conv": "Conv", "/r/Relu": "Relu"},
    )
    assert str(table).splitlines() == [
        "2 ONNX nodes became 1 kernel (1 with INT8)",
        f"{'kernel':40}  operators    reads  writes  shape",
        f"{'k' * 37}...  Conv + Relu  INT8   FP16    Nx4x8x8",
    ]
    assert "No layer table" in str(LayerTable()) and pretty(table) == str(table)
