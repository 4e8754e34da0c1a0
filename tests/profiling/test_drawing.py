"""The pictures of layer tables: every node once, every kernel once, the title says what happened, and it is a PNG."""

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from matplotlib.patches import PathPatch, Rectangle

from course_lib import style
from course_lib.engines import Layer, LayerTable, LayerTensor, Plan
from course_lib.profiling import draw
from course_lib.profiling.layer_tables import boxes as layer_boxes
from course_lib.profiling.layer_tables.table_diff import diff
from course_lib.recipe import ShapeRange
from course_lib.teaching.pictures import bars, draw_range, gallery, variants

TABLE = LayerTable(
    (
        Layer("host", "shape_call"),
        Layer("move", "kgen"),
        Layer("conv_kernel", "correlation", onnx_nodes=("/conv", "/relu", "/add")),  # not in the graph's order
        Layer("mean_kernel", "kgen", onnx_nodes=("/mean",)),
        Layer("head_kernel", "runtime_fusion", onnx_nodes=("/head",)),
    ),
    {"/conv": "Conv", "/add": "Add", "/relu": "Relu", "/mean": "ReduceMean", "/drop": "Dropout", "/head": "Gemm"},
)


def texts(figure):
    return [text.get_text() for text in figure.axes[0].texts]


def boxes(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_every_node_and_kernel_is_drawn_once_and_what_the_compiler_added_is_marked():
    figure = draw(TABLE)
    assert [text for text in texts(figure) if text.startswith("/")] == list(TABLE.operators)
    names = [layer.name for layer in TABLE.layers]
    assert [text for text in texts(figure) if text in names] == names[1:], "without the host's steps"
    assert "no ONNX node" in texts(figure)
    dashed = [box for box in boxes(figure) if box.get_linestyle() == "--"]
    assert len(dashed) == 2  # the kernel without a node, and the node without a kernel
    edges = [box.get_edgecolor() for box in boxes(figure) if box not in dashed]
    assert edges.count(VERMILION) == 1 + 3 and edges.count(BLUE) == 2 + 2, (
        "a fused kernel with its nodes, and two that are alone"
    )
    assert not [text for text in texts(figure) if "more" in text]


def test_a_window_shows_the_nodes_that_were_asked_for_and_their_kernels():
    figure = draw(TABLE, nodes=["/relu", "/head"])
    assert [text for text in texts(figure) if text.startswith("/")] == ["/relu", "/head"]
    assert [text for text in texts(figure) if "_kernel" in text] == ["conv_kernel", "head_kernel"]
    assert "Conv + Add + Relu" in texts(figure), "a kernel is called after all of its nodes"
    assert figure.axes[0].get_title() == "6 ONNX nodes became 4 kernels"
    assert "move" in texts(figure), "added by the compiler before a kernel that is drawn"
    assert [text for text in texts(figure) if "more" in text] == ["and 4 more", "and 1 more"]
    assert [text for text in texts(draw(TABLE, nodes="/re")) if text.startswith("/")] == ["/relu"]


def test_what_cannot_be_drawn_says_why():
    for nodes in ("/blocks", ["conv"], []):
        for tables in ({"table": TABLE}, {"before": TABLE, "after": TABLE}):
            with pytest.raises(ValueError, match=r"no ONNX node .*: the names are like '/conv'"):
                draw(**tables, nodes=nodes)
    for table in (LayerTable(), LayerTable((Layer("host", "wait"),))):
        with pytest.raises(ValueError, match="no layer table"):
            draw(table)
    for tables in ({}, {"before": TABLE}, {"after": TABLE}, {"table": TABLE, "after": TABLE}):
        with pytest.raises(ValueError, match=r"draw\(before=\.\.\., after=\.\.\.\) compares two"):
            draw(**tables)
    name = "/encoder" * 20 + "/end"  # is cut in the middle
    drawn = [text for text in texts(draw(LayerTable((Layer("k", "kgen", onnx_nodes=(name,)),)))) if text.startswith("/")]
    assert all(len(text) < 60 and text.endswith("/end") for text in drawn)


# ---- two plans side by side


def kernel(name, *nodes, dtype="Float", writes=""):
    read, written = LayerTensor("x", (1,), dtype), LayerTensor("y", (1,), writes or dtype)
    return Layer(name, "kgen", inputs=(read,), outputs=(written,), onnx_nodes=nodes)


BEFORE = LayerTable(
    (kernel("move"), kernel("k1", "/conv"), kernel("k2", "/add", "/relu"), kernel("k3", "/mean"), kernel("k4", "/head")),
    TABLE.operators,
)
AFTER = LayerTable(
    (
        kernel("cast", "x/to_fp16", writes="Half"),
        kernel("f1", "/conv", "/add", "/relu", dtype="Half"),
        kernel("f2", "/mean", dtype="Half"),
        kernel("f3", "/head", dtype="Int8", writes="Float"),
    ),
    {"x/to_fp16": "Cast", **TABLE.operators},
)
BLUE, VERMILION, GREEN = (tuple(to_rgba(style.COLORS[place])) for place in (0, 1, 2))


def columns(figure):
    """Boxes by column: kernels before, nodes, kernels after."""
    found = {}
    for box in boxes(figure):
        found.setdefault(round(box.get_x(), 3), []).append(box)
    return [found[x] for x in sorted(found)]


def bands(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, PathPatch)]


def test_both_plans_are_drawn_with_their_nodes_between_them():
    figure = draw(before=BEFORE, after=AFTER)
    left, middle, right = columns(figure)
    assert (len(left), len(middle), len(right)) == (5, 6, 4)
    drawn = texts(figure)
    assert [drawn.count(text) for text in ("Conv", "Add + Relu", "Conv + Add + Relu", "Cast", "no ONNX node")] == [1] * 5
    assert [text for text in drawn if text.startswith(("/", "x/"))] == ["x/to_fp16", "/conv", "/add", "/relu", "/mean", "/head"]
    assert "/drop" not in drawn, "it has no kernel on either side"
    assert (
        figure.axes[0].get_title()
        == diff(BEFORE, AFTER).headline
        == ("5 kernels became 4: Conv + Add + Relu fused in 1 place, FP16 instead of FP32 in 2 kernels")
    )


def test_every_kernel_says_its_types_and_has_their_color():
    figure = draw(before=BEFORE, after=AFTER)
    drawn = texts(figure)
    assert drawn.count("FP32 → FP32") == 5 and drawn.count("FP16 → FP16") == 2
    assert "FP32 → FP16" in drawn and "INT8 → FP32" in drawn
    left, _, right = columns(figure)
    assert {box.get_edgecolor() for box in left} == {BLUE}
    assert [box.get_edgecolor() for box in right] == [BLUE, VERMILION, VERMILION, GREEN]
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend[:3] == ["INT8", "FP16", "FP32"] and "other" not in legend


def test_bands_are_strong_where_kernels_merged():
    figure = draw(before=BEFORE, after=AFTER)
    strong = [band for band in bands(figure) if band.get_alpha() > 0.5]
    faint = [band for band in bands(figure) if band.get_alpha() < 0.2]
    assert len(strong) == 3 + 3 + 1, "conv, add and relu on both sides, and the cast, which is new"
    assert len(faint) == 2 + 2, "mean and head"


def test_a_window_into_two_plans():
    figure = draw(before=BEFORE, after=AFTER, nodes=("/mean", "/head"))
    assert [len(column) for column in columns(figure)] == [2, 2, 2]
    assert any("part of\n5 kernels" in text for text in texts(figure))


def test_a_name_of_thousands_of_letters_is_cut_at_once():
    assert len(layer_boxes.fitted("/encoder/MatMul+" * 200, 120.0)) < 40
    assert layer_boxes.fitted("", 120.0) == "" and layer_boxes.fitted("stem", 120.0) == "stem"


def test_boxes_of_two_long_plans_do_not_overlap():
    nodes = {f"/n{i}": "Relu" for i in range(120)}
    many = LayerTable(tuple(kernel(f"k{i}", f"/n{i}") for i in range(120)), nodes)
    few = LayerTable(tuple(kernel(f"f{i}", *(f"/n{j}" for j in range(4 * i, 4 * i + 4))) for i in range(30)), nodes)
    for column in columns(draw(before=many, after=few)):
        spans = sorted((box.get_y(), box.get_y() + box.get_height()) for box in column)
        assert all(above[1] <= below[0] + 1e-9 for above, below in pairwise(spans))


def plan(size):
    return Plan("tensorrt_rtx", "1", b"x" * size, "0", {}, (), TABLE, 0.5)


def test_every_figure_renders_and_says_what_it_shows():
    shapes = ShapeRange(min=(1, 3), opt=(1, 3), max=(4, 3))
    sizes = variants({"fp32": plan(2000), "fp16": plan(1000)})
    ranges = [draw_range(shapes, {1: True, 4: True, 5: wrong}) for wrong in (False, True)]
    titles = [figure.axes[0].get_title(loc="left") for figure in ranges]
    assert "outside raise an error" in titles[0] and "do not match" in titles[1] and "fp16" in sizes.get_suptitle()
    others = (bars({"a": 1.0, "b": 2.0}, "size (kB)", "b is larger"), gallery({"ink": np.eye(8)}, "A diagonal"))
    for figure in (draw(TABLE), draw(before=BEFORE, after=AFTER), sizes, *ranges, *others):
        assert style.png(figure).startswith(b"\x89PNG")
