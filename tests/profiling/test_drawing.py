"""The picture of a layer table: every node once, every kernel once, the title counts them, and it is a PNG."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from course_lib import style
from course_lib.engines import Layer, LayerTable, Plan
from course_lib.profiling import bars, draw, gallery, promise, variants, workflow
from course_lib.recipe import ShapeRange

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


def is_png(figure):
    return style.png(figure).startswith(b"\x89PNG")


def test_the_title_counts_nodes_and_kernels():
    assert draw(TABLE).axes[0].get_title() == "6 ONNX nodes became 4 kernels"


def test_every_node_is_drawn_once_in_the_graphs_order():
    drawn = [text for text in texts(draw(TABLE)) if text.startswith("/")]
    assert drawn == list(TABLE.operators)


def test_every_kernel_is_drawn_once_and_the_host_is_left_out():
    drawn = [text for text in texts(draw(TABLE)) if "  (" in text]
    assert drawn == [f"{kernel.name}  ({kernel.kind})" for kernel in TABLE.kernels]


def test_a_kernel_names_its_operators_in_the_graphs_order():
    assert "Conv + Add + Relu" in texts(draw(TABLE))


def test_what_the_compiler_added_is_marked():
    figure = draw(TABLE)
    assert "no ONNX node" in texts(figure)
    dashed = [box for box in boxes(figure) if box.get_linestyle() == "--"]
    assert len(dashed) == 2  # the kernel without a node, and the node without a kernel


def boxes(figure):
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]


def test_nodes_of_one_kernel_share_its_colour_and_neighbours_differ():
    move, conv, mean, head, *nodes = [patch.get_edgecolor() for patch in boxes(draw(TABLE))]
    assert nodes == [conv, conv, conv, mean, move, head]  # the fifth was dropped: grey, as the kernel without a node
    assert len({move, conv, mean, head}) == 4


def test_boxes_of_kernels_do_not_overlap_however_many_there_are():
    many = LayerTable(tuple(Layer(f"k{i}", "kgen", onnx_nodes=("/a",) if i % 3 else ()) for i in range(60)), {"/a": "Relu"})
    spans = sorted((box.get_y(), box.get_y() + box.get_height()) for box in boxes(draw(many)) if box.get_x() > 5)
    assert len(spans) == 60
    assert all(above[1] <= below[0] + 1e-9 for above, below in pairwise(spans))


def test_without_the_graph_the_kernels_tell_the_nodes():
    assert draw(LayerTable(TABLE.layers)).axes[0].get_title() == "5 ONNX nodes became 4 kernels"


def test_a_long_name_is_cut_in_the_middle():
    name = "/encoder" * 20 + "/end"
    drawn = [text for text in texts(draw(LayerTable((Layer("k", "kgen", onnx_nodes=(name,)),)))) if text.startswith("/")]
    assert all(len(text) < 60 and text.endswith("/end") for text in drawn)


@pytest.mark.parametrize("table", [LayerTable(), LayerTable((Layer("host", "wait"),))])
def test_a_plan_without_kernels_says_so(table):
    with pytest.raises(ValueError, match="no layer table"):
        draw(table)


def plan(size):
    return Plan("tensorrt_rtx", "1", b"x" * size, "0", {}, (), TABLE, 0.5)


@pytest.mark.parametrize(
    "figure",
    [
        draw(TABLE),
        workflow(),
        promise(ShapeRange(min=(1, 3), opt=(1, 3), max=(4, 3)), {1: True, 4: True, 5: False}),
        variants({"fp32": plan(2000), "fp16": plan(1000)}),
        bars({"a": 1.0, "b": 2.0}, "size (kB)", "b is larger"),
        gallery({"ink": np.eye(8)}, "A diagonal"),
    ],
)
def test_every_figure_renders(figure):
    assert is_png(figure)


def test_the_promise_is_judged_on_what_was_tried():
    shapes = ShapeRange(min=(1,), opt=(2,), max=(4,))
    assert "contract" in promise(shapes, {1: True, 5: False}).axes[0].get_title(loc="left")
    assert "does not keep" in promise(shapes, {1: True, 5: True}).axes[0].get_title(loc="left")


def test_variants_name_the_smallest():
    assert "fp16" in variants({"fp32": plan(2000), "fp16": plan(1000)}).get_suptitle()
