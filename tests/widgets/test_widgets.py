"""What holds for every widget: the figure follows the controls, and a page without a kernel has a picture."""

from __future__ import annotations

import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from course_lib.benchmark.records import RESULTS
from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.profiling import read_ncu, read_torch_trace
from course_lib.widgets import LayerViewer, PrecisionExplorer, ProfileExplorer, RooflineViewer, TimelineViewer

RECORDED = RESULTS / "profiles_h200"


def layers(dtype: str = "Float", first: str = "conv_relu") -> LayerTable:
    """Three kernels; the first holds two nodes, the last is always Float."""

    def layer(name: str, type_: str, *nodes: str) -> Layer:
        tensor = LayerTensor("x", (-1, 8), type_, "Row")
        return Layer(name, "kgen", (tensor,), (), (tensor,), onnx_nodes=nodes)

    rows = (layer(first, dtype, "/conv", "/relu"), layer("pool", dtype, "/pool"), layer("softmax", "Float", "/softmax"))
    return LayerTable(rows, {"/conv": "Conv", "/relu": "Relu", "/pool": "MaxPool", "/softmax": "Softmax"})


def tensor() -> np.ndarray:
    values = np.random.default_rng(0).normal(size=2000).astype(np.float32)
    values[:2] = 20.0, -15.0
    return values


MAKERS = {
    "number": (PrecisionExplorer, {"size": 1e5}),
    "tensor": (lambda: PrecisionExplorer(tensor(), "scores"), {"percent": 20.0}),
    "profile": (lambda: ProfileExplorer({8: {1: 0.5, 8: 1.0, 32: 3.0}}, [1, 2, 2, 8, 30]), {"high": 16}),
    "layers": (lambda: LayerViewer(layers(), layers("Half")), {"dtype": "Float", "search": "conv"}),
    "timeline": (lambda: TimelineViewer(read_torch_trace(RECORDED / "slow.json.gz")), {"zoom": (10.0, 20.0)}),
    "roofline": (lambda: RooflineViewer(read_ncu(RECORDED / "kernels.csv"), 989e12, 4.8e12), {"index": 2}),
}


@pytest.fixture(scope="module", params=MAKERS)
def made(request):
    make, moves = MAKERS[request.param]
    return make(), make, moves


def test_the_bundle_has_the_widget_and_a_picture_for_pages_without_a_kernel(made):
    shown, _, _ = made
    bundle, details = shown._repr_mimebundle_()
    assert details["image/png"]["alt"].startswith(shown.static().get_suptitle() or "")
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.widget.model_id
    picture = base64.b64decode(bundle["image/png"], validate=True)
    assert picture.startswith(b"\x89PNG") and picture == shown.picture.value
    assert bundle["text/plain"] == repr(shown) and len(bundle["text/plain"]) > 40


def test_every_control_has_a_description(made):
    shown, _, _ = made
    assert shown.controls and all(len(control.description) > 3 for control in shown.controls.values())


def test_moving_a_control_draws_another_figure_of_the_same_size(made):
    _, make, moves = made
    shown = make()
    shown._repr_mimebundle_()
    picture, line = shown.picture.value, shown.line.value
    width, height = shown.picture.width, shown.picture.height
    for name, value in moves.items():
        shown.controls[name].value = value
    assert shown.picture.value != picture
    assert shown.line.value != line
    for drawn in (picture, shown.picture.value):
        assert Image.open(BytesIO(drawn)).size == (int(width), int(height))


def test_equal_widgets_draw_equal_figures(made):
    shown, make, _ = made
    assert make()._repr_mimebundle_()[0]["image/png"] == shown._repr_mimebundle_()[0]["image/png"]


def test_figure_and_text_need_no_kernel_and_change_nothing(made):
    shown, _, moves = made
    before = shown.state
    state = {**before, **moves}
    assert shown.text(**state) == shown.text(**state) != shown.text(**before)
    assert shown.figure(**state).axes and shown.static().axes
    assert shown.state == before


def test_the_line_is_announced_and_inherits_its_colour(made):
    shown, _, _ = made
    line = shown.html(**shown.state)
    assert 'role="status"' in line and 'aria-live="polite"' in line
    assert "color:" not in line.partition("</div>")[0]


def test_the_picture_has_no_tooltip(made):
    # ipywidgets 8 asks a widget with a tooltip for its description too, which a picture lacks: the browser would show an error
    assert made[0].picture.tooltip is None
