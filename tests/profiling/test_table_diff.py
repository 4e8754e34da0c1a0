"""What changed between two plans: made up so that the answer is known, built by a real compiler, and recorded on a GPU."""

import gzip
import json
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import engines
from course_lib.benchmark.records import RESULTS
from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.precision import activations, cast, insert_qdq
from course_lib.profiling.layer_tables.kernel_groups import matched_groups
from course_lib.profiling.layer_tables.table_diff import diff
from tests.exported import exported, recipe_for

RECORDED = RESULTS / "tensorrt86_h200"


def kernel(name: str, *nodes: str, dtype: str = "Float", layout: str = "", kind: str = "kgen", writes: str = "") -> Layer:
    tensor = LayerTensor("x", (1, 4), dtype)
    return Layer(name, kind, inputs=(tensor,), outputs=(LayerTensor("y", (1, 4), writes or dtype, layout),), onnx_nodes=nodes)


OPERATORS = {"conv": "Conv", "relu": "Relu", "turn": "Transpose", "add": "Add", "head": "Gemm"}


def table(*kernels: Layer, **more: str) -> LayerTable:
    return LayerTable(kernels, {**OPERATORS, **more})


# ---- known by hand

APART = table(kernel("a1", "conv"), kernel("a2", "relu"), kernel("a3", "turn"), kernel("a4", "add"), kernel("a5", "head"))


QUANTIZED = table(
    kernel("b1", "conv"), kernel("reformat"), kernel("b2", "x/q"), kernel("b3", "head"), **{"x/q": "QuantizeLinear"}
)
PAIRS = {  # two tables, the changes, and words of the text and the headline
    "merged": (
        APART, table(kernel("b1", "conv", "relu"), kernel("b2", "turn"), kernel("b3", "add"), kernel("b4", "head")),
        ["merged a1 a2 > b1", "kept a3 > b2", "kept a4 > b3", "kept a5 > b4"],
        ["5 kernels before, 4 after; 3 unchanged.", "Fused: Conv + Relu in 1 place.",
         "Merged: 2 kernels became 1 (Conv + Relu) in 1 place.", "5 kernels became 4: Conv + Relu fused in 1 place"],
    ),
    "several became several others": (
        table(kernel("a1", "conv"), kernel("a2", "add", "relu")), table(kernel("b1", "conv", "add"), kernel("b2", "relu")),
        ["regrouped a1 a2 > b1 b2"], ["Fused: Conv + Add", "Relu + Add"],
    ),
    "a second profile": (
        table(kernel("a", "conv", "relu")), table(kernel("p0", "conv", "relu"), kernel("p1", "relu", "conv")),
        ["repeated a > p0 p1"], [],
    ),
    "what no node explains": (
        table(kernel("a1", "conv"), kernel("a2", "turn"), kernel("a3", "head")), QUANTIZED,
        ["kept a1 > b1", "appeared > reformat", "appeared > b2", "vanished a2 >", "kept a3 > b3"],
        ["Added: 2 kernels (QuantizeLinear; without an ONNX node: reformat).", "Gone: 1 kernel (Transpose).",
         "Nodes that only the graph after has: QuantizeLinear."],
    ),
    "kernels without nodes are the same between the same": (
        table(kernel("move"), kernel("a1", "conv"), kernel("a2", "relu"), kernel("copy"), kernel("a3", "head")),
        table(kernel("b1", "conv"), kernel("extra"), kernel("b2", "relu"), kernel("other", dtype="Half"), kernel("b3", "head")),
        ["vanished move >", "kept a1 > b1", "appeared > extra", "kept a2 > b2", "kept copy > other", "kept a3 > b3"], [],
    ),
    "a pair beside a kernel with the same nodes": (
        table(kernel("a", "conv", "relu")), table(kernel("int8", "conv", dtype="Int8"), kernel("scale", "conv", "relu")),
        ["split a > int8 scale"],
        ["Reads: INT8 instead of FP32 in 1 kernel.", "1 kernel became 2: split in 1 place, INT8 instead of FP32 in 1 kernel"],
    ),
    "no node in common": (
        table(kernel("a", "conv")), LayerTable((kernel("b", "other"),)), ["vanished a >", "appeared > b"], ["no ONNX node in common"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PAIRS)
def test_what_changed_is_told(what: str) -> None:
    before, after, changes, words = PAIRS[what]
    compared = diff(before, after)
    found = [" ".join([c.kind, *(k.name for k in c.before), ">", *(k.name for k in c.after)]) for c in compared.changes]
    assert sorted(found) == sorted(changes)
    assert [word for word in words if word not in f"{compared}\n{compared.headline}"] == []


def test_a_table_without_kernels_is_rejected() -> None:
    for before, after, which in ((LayerTable(), APART, "before"), (APART, LayerTable((Layer("h", "wait"),)), "after")):
        with pytest.raises(ValueError, match=f"the table {which} has no kernels"):
            diff(before, after)


def test_operators_stand_in_the_order_of_the_graph_that_has_them() -> None:
    """The second graph has a node in the middle that the first one lacks, as after an export with a residual connection."""
    before = LayerTable((kernel("a1", "conv", "relu"),), {"conv": "Conv", "relu": "Relu"})
    after = LayerTable((kernel("b1", "conv", "add", "relu"),), {"conv": "Conv", "add": "Add", "relu": "Relu"})
    for compared in (diff(before, after), diff(after, before)):
        assert compared.operators(["relu", "add", "conv"]) == "Conv + Add + Relu"
    assert diff(before, after).operators(iter(["relu", "unknown", "conv"])) == "Conv + Relu + unknown"


def test_types_and_formats_that_changed() -> None:
    before = table(kernel("a1", "conv", layout="NHWC"), kernel("a2", "relu"), kernel("a3", "head"))
    after = table(
        kernel("b1", "conv", layout="Linear", dtype="Half"), kernel("b2", "relu", writes="Half"), kernel("b3", "head", dtype="")
    )
    compared = diff(before, after)
    conv, relu, head = compared.changes
    assert conv.differs == {"reads": ("FP32", "FP16"), "writes": ("FP32", "FP16"), "format": ("NHWC", "Linear")}
    assert relu.differs == {"writes": ("FP32", "FP16")} and head.differs == {}, "what one side does not tell is not compared"
    assert compared.unchanged == (head,)
    assert compared.headline == "3 kernels stayed 3: FP16 instead of FP32 in 1 kernel"


def test_without_a_graph_the_ends_of_names_serve() -> None:
    before = LayerTable((kernel("a1", "/l/conv/Conv"), kernel("a2", "/l/relu/Relu")))
    after = LayerTable((kernel("b", "/l/conv/Conv", "/l/relu/Relu"),))
    assert str(diff(before, after)).splitlines()[1] == "Fused: Conv + Relu in 1 place."


# ---- shown


def test_the_notebook_shows_what_changed_and_escapes_names() -> None:
    before = table(kernel("<a1>", "conv"), kernel("a2", "relu"), kernel("a3", "<turn>"), kernel("a4", "head"))
    after = table(kernel("b1", "conv", "relu", dtype="Half"), kernel("b2", "head"), kernel("<b3>"))
    html = diff(before, after)._repr_html_()
    assert "<a1>" not in html and "&lt;a1&gt;" in html and "<turn>" not in html and "<b3>" not in html
    assert html.count("<tr") == 1 + 3 + 1, "a head, three changes, and the unchanged ones in one row"
    assert "merged" in html and "gone" in html and "added" in html and "FP32 → FP16" in html and "1 kernel unchanged" in html


def test_json_holds_every_change() -> None:
    compared = diff(APART, table(kernel("b1", "conv", "relu", dtype="Half"), kernel("b3", "head")))
    values = json.loads(json.dumps(compared.to_json()))
    assert values["kernels"] == [5, 2] and values["summary"] == str(compared).splitlines()
    first = values["changes"][0]
    assert first["kind"] == "merged" and first["before"] == ["a1", "a2"] and first["after"] == ["b1"]
    assert first["nodes"] == ["conv", "relu"] and first["differs"]["reads"] == ["FP32", "FP16"]
    assert [change["kind"] for change in values["changes"]] == ["merged", "vanished", "vanished", "kept"]


# ---- any sets of nodes

sets = st.lists(st.frozensets(st.sampled_from("abcdef"), max_size=4), min_size=1, max_size=7)


@given(sets, sets)
def test_every_kernel_is_in_one_group_and_groups_do_not_share_nodes(
    before: list[frozenset[str]], after: list[frozenset[str]]
) -> None:
    groups = matched_groups(before, after)
    assert sorted(i for old, _ in groups for i in old) == list(range(len(before)))
    assert sorted(j for _, new in groups for j in new) == list(range(len(after)))
    common = frozenset().union(*before) & frozenset().union(*after)
    for old, new in groups:
        assert old or new
        if len(old) + len(new) > 2:
            assert old and new, "only what is grouped through shared nodes has more than two kernels"
        if not new:
            assert not before[old[0]] & common, "a kernel whose nodes are in kernels on the other side is matched"
        if not old:
            assert not after[new[0]] & common


@given(sets)
def test_a_plan_is_unchanged_beside_itself(nodes: list[frozenset[str]]) -> None:
    kernels = tuple(kernel(f"k{i}", *sorted(held)) for i, held in enumerate(nodes))
    if not any(nodes):
        return  # nothing to match by
    compared = diff(LayerTable(kernels), LayerTable(kernels))
    assert len(compared.unchanged) == len(kernels) and not compared.fused and not compared.parted
    assert (
        str(compared)
        == f"{len(kernels)} kernel{'' if len(kernels) == 1 else 's'} before, {len(kernels)} after; {len(kernels)} unchanged."
    )


@given(sets, sets)
def test_the_two_directions_mirror_each_other(before: list[frozenset[str]], after: list[frozenset[str]]) -> None:
    one, other = (
        diff(*(LayerTable(tuple(kernel(f"{side}{i}", *sorted(held)) for i, held in enumerate(nodes))) for side, nodes in order))
        for order in ((("b", before), ("a", after)), (("a", after), ("b", before)))
    )
    mirrored = {"merged": "split", "split": "merged", "appeared": "vanished", "vanished": "appeared"}
    assert Counter(mirrored.get(c.kind, c.kind) for c in one.changes) == Counter(c.kind for c in other.changes)
    assert Counter(map(str, one.fused)) == Counter(map(str, other.parted)) and one.only_before == other.only_after


# ---- a real compiler


@cache
def built(name: str, precision: Any) -> LayerTable:
    model = exported(name)
    if precision == "fp16":
        model = cast(model, "fp16")
    if precision == "int8":
        model = insert_qdq(model, dict.fromkeys(activations(model), 4.0))
    return engines.build(model, recipe_for(name, precision), backend="tensorrt_rtx").layers


def test_attention_fuses_in_half_precision_only() -> None:
    compared = diff(built("encoder", "fp32"), built("encoder", "fp16"))
    assert len(compared.before.kernels) > len(compared.after.kernels)
    attention = compared.fused[0]
    assert str(attention) == "attention (MatMul + Softmax + MatMul)" and attention.places == 4 and attention.pieces >= 8
    assert f"{len(compared.after.kernels)}: attention fused in 4 places, FP16 instead of FP32" in compared.headline
    back = diff(built("encoder", "fp16"), built("encoder", "fp32"))
    assert "attention taken apart in 4 places" in back.headline
    assert not any("attention" in str(together) for together in back.fused)


def test_pairs_turn_convolutions_to_int8_and_leave_their_epilogue_to_a_kernel_of_its_own() -> None:
    compared = diff(built("small", "fp32"), built("small", "int8"))
    added = [node for node in compared.after.operators if node.endswith(("/quantize", "/dequantize"))]
    assert list(compared.only_after) == added and not compared.only_before
    stem = next(c for c in compared.changes if "/stem+norm/Conv" in c.nodes)
    assert stem.kind == "split" and len(stem.before) == 1
    assert "Int8" in {dtype for k in stem.after for dtype in k.dtypes}
    assert "INT8 instead of FP32 in 10 kernels" in compared.headline
    assert len(compared.of("split")) >= 6


# ---- recorded on a GPU


def test_tensorrt_8_6_from_fp32_to_int8() -> None:
    texts = [gzip.decompress((RECORDED / f"r50_{name}.json.gz").read_bytes()).decode() for name in ("fp32", "int8")]
    compared = diff(*map(parse_inspector, texts))
    assert (
        compared.headline == "57 kernels became 56: Conv + Relu + MaxPool fused in 1 place, INT8 instead of FP32 in 54 kernels"
    )
    merged = compared.of("merged")[0]
    assert merged.after[0].kind == "CaskConvActPool" and [k.kind for k in merged.before] == ["CaskConvolution", "CaskPooling"]
    assert [change.differs for change in compared.changes if change.differs] == [{"weights": ("FP32", "INT8")}] * 54
    assert not compared.of("vanished", "split", "regrouped", "appeared")
