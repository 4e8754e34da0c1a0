"""What each widget says, against numbers computed by hand, and what it refuses."""

from __future__ import annotations

import math
from html.parser import HTMLParser

import numpy as np
import pytest
import traitlets

from course_lib.benchmark import recorded
from course_lib.engines import LayerTable
from course_lib.errors import CourseError
from course_lib.profiling import Event, KernelMetrics, Timeline
from course_lib.widgets import LayerViewer, PrecisionExplorer, ProfileExplorer, RooflineViewer, TimelineViewer
from course_lib.widgets.number_figure import number_figure, number_text
from course_lib.widgets.tensor_figure import TensorView, tensor_figure

from .test_widgets import layers, tensor


@pytest.mark.parametrize(
    ("value", "name", "scale", "title", "text"),
    [
        (70_000, "FP16", 1, "beyond FP16: the largest number is 65504, so a cast gives inf", "as inf."),
        (500, "FP8 E4M3", 1, "so a cast gives nan", "as nan."),
        (1e-8, "FP16", 1, "too small for FP16: it becomes 0", "its neighbours are 5.96e-08 away"),
        (3e-7, "FP16", 1, "subnormal", "its neighbours are 5.96e-08 away"),
        (-5, "INT8", 0.01, "clipped to -1.28", "off by 3.72"),
        (0, "BF16", 1, "0 % off", "off by 0;"),
        (1, "TF32", 1, "0 % off", "neighbours are 0.000977 away"),
    ],
)
def test_one_number(value, name, scale, title, text):
    assert title in number_figure(value, name, scale).get_suptitle()
    assert text in number_text(value, name, scale)


def test_the_explorer_of_one_number_knows_its_sign():
    shown = PrecisionExplorer()
    shown.controls["negative"].value = True
    assert "stores -0.1 as -0.0999755859" in shown.text(**shown.state)


@pytest.mark.parametrize(("name", "typed"), [("size", 70_000.0), ("size", 300.0), ("size", 0.0), ("scale", 0.0123456)])
def test_a_typed_number_stays_as_it_was_typed(name, typed):
    shown = PrecisionExplorer()
    shown.controls[name].value = typed
    assert shown.state[name] == typed


def test_a_number_stays_within_its_limits():
    shown = PrecisionExplorer(tensor(), "scores")
    shown.controls["percent"].value = 33.333
    assert shown.state["percent"] == 33.333
    shown.controls["percent"].value = 140
    assert shown.state["percent"] == 100.0
    for useless in (math.nan, "12", None, True):
        with pytest.raises(traitlets.TraitError):
            shown.controls["percent"].value = useless


def test_the_step_of_int8_is_disabled_where_it_has_no_effect():
    shown = PrecisionExplorer()
    _ = shown.widget
    assert shown.controls["scale"].disabled
    shown.controls["name"].value = "INT8"
    assert not shown.controls["scale"].disabled
    shown.controls["name"].value = "BF16"
    assert shown.controls["scale"].disabled


def test_a_choice_is_one_of_its_options():
    control = PrecisionExplorer().controls["name"]
    control.at = control.labels.index("BF16")  # what the browser sends
    assert control.value == "BF16"
    with pytest.raises(traitlets.TraitError, match="must be one of"):
        control.value = "FP12"
    with pytest.raises(traitlets.TraitError, match="found place 99"):
        control.at = 99


@pytest.mark.parametrize(("value", "name"), [(math.nan, "FP16"), (math.inf, "FP16"), (1.0, "FP12")])
def test_a_number_that_cannot_be_shown(value, name):
    with pytest.raises(ValueError, match=r"finite|no format"):
        number_figure(value, name, 1.0)


def test_the_quality_of_a_tensor_is_that_of_its_quantized_copy():
    values = tensor().astype(np.float64)
    view = TensorView.of(values, "scores")
    threshold = 4.0
    copy = np.clip(np.rint(values / (threshold / 127)), -128, 127) * (threshold / 127)
    want = 10 * np.log10(np.sum(values**2) / np.sum((copy - values) ** 2))
    assert view.sqnr_db("INT8", threshold) == pytest.approx(want, abs=1e-3)
    assert len(view.curves["FP8 E4M3"]) == len(view.candidates) and view.candidates[-1] == pytest.approx(20.0)
    assert view.unscaled["FP16"] > view.unscaled["BF16"] > view.curves["INT8"].max()


def test_fp8_is_scaled_to_its_threshold():
    view = TensorView.of(np.array([1.0, 2.0, 3.0, 100.0]), "x")
    # all but the last are multiples of a power of two after the scale 4 / 448, which is no power of two: not exact, but near
    assert view.sqnr_db("FP8 E4M3", 100.0) > 30
    assert view.sqnr_db("FP8 E4M3", 4.0) == pytest.approx(20 * np.log10(np.sqrt(10014) / 96), abs=0.05)  # 100 becomes 4


def test_the_clipped_share_is_said():
    shown = PrecisionExplorer(tensor(), "scores")
    assert "0.1 % of 2,000 values clipped" in shown.text(percent=50.0, name="INT8")  # 20 and -15, beyond 10
    assert "clips 0.1 %" in shown.figure(percent=50.0, name="INT8").get_suptitle()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(10), "nothing but zeros"),
        (np.array([]), "1 to 1,000,000 floats, found 0"),
        (np.arange(5), "of int64"),
        (np.ones(1_000_001, np.float32), "pass a part"),
        (np.array([1.0, math.nan]), "NaN"),
    ],
)
def test_a_tensor_that_cannot_be_shown(values, message):
    with pytest.raises((ValueError, CourseError), match=message):
        PrecisionExplorer(values)


@pytest.mark.parametrize(("percent", "name"), [(0.0, "INT8"), (101.0, "INT8"), (50.0, "FP16")])
def test_a_threshold_that_means_nothing(percent, name):
    with pytest.raises(ValueError, match="threshold"):
        tensor_figure(TensorView.of(tensor(), "x"), percent, name)


def test_a_profile_over_traffic():
    shown = ProfileExplorer({5: {1: 1.0, 9: 9.0}}, [1, 3, 5, 9, 5])
    assert shown.state == {"low": 1, "opt": 5, "high": 9}  # the measured opt, and all requests that came
    said = shown.text(low=2, opt=5, high=8)
    assert "2 of 5 requests refused (40 %, of sizes 1 to 9)" in said
    assert "mean 4.33 ms, slowest 5 ms" in said  # 3, 5, 5: the curve is a straight line
    assert "0 of 5 requests refused (0 %)" in shown.text(low=1, opt=5, high=9)
    assert "not a profile" in shown.text(low=6, opt=5, high=8)
    assert "Not a profile" in shown.figure(low=6, opt=5, high=8).get_suptitle()
    nobody = ProfileExplorer({8: {1: 1.0, 9: 9.0}}, [1, 9])
    assert "2 of 2" in nobody.text(low=7, opt=8, high=8) and "Latency" not in nobody.text(low=7, opt=8, high=8)


def test_another_opt_is_another_measured_curve():
    rows = [row for row in recorded("engines_h200").rows if row.get("group") == "profiles"]
    curves = {opt: {row["batch"]: row["ms"] for row in rows if row["engine"] == f"tuned at {opt}"} for opt in (1, 8, 64)}
    shown = ProfileExplorer(curves, [1] * 90 + [64] * 10)
    assert shown.controls["opt"].options == [1, 8, 64] and shown.state["opt"] == 1
    means = {}
    for opt, curve in curves.items():
        shown.controls["opt"].value = opt
        means[opt] = 0.9 * curve[1] + 0.1 * curve[64]
        assert f"tuned for {opt}: 0 of 100" in shown.text(**shown.state)
        assert f"mean {means[opt]:.3g} ms, slowest {curve[64]:.3g} ms" in shown.text(**shown.state)
        chosen = max(
            shown.figure(**shown.state).axes[0].lines, key=lambda line: line.get_linewidth() * (len(line.get_xdata()) > 2)
        )
        assert list(chosen.get_ydata()) == list(curve.values())
    assert f"opt 64: {means[64]:.3g} and {curves[64][64]:.3g} ms" in shown.text(low=1, opt=1, high=64)


@pytest.mark.parametrize(
    ("curve", "requests"),
    [({1: 1.0}, [1]), ({0: 1.0, 2: 1.0}, [1]), ({1: -1.0, 2: 1.0}, [1]), ({1: 1.0, 2: math.nan}, [1]), ({1: 1, 2: 2}, []),
     ({1: 1, 2: 2}, [0]), ({1: 1, 2: 2}, [1.5])],
)  # fmt: skip
def test_a_profile_explorer_refuses(curve, requests):
    with pytest.raises(ValueError, match=r"the curve of opt 1 must|requests must"):
        ProfileExplorer({1: curve}, requests)


def test_a_profile_explorer_without_curves_is_refused():
    with pytest.raises(ValueError, match="measure at least one engine"):
        ProfileExplorer({}, [1])


class Table(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.data: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.data.append(data)


def test_layers_are_filtered_by_type_and_by_words():
    shown = LayerViewer(layers("Half"))
    assert "changes" not in shown.controls
    assert shown.text(dtype="all", search="").startswith("3 of 3")
    assert shown.text(dtype="Half", search="").startswith("2 of 3")
    assert shown.text(dtype="all", search="RELU conv").startswith("1 of 3")
    table = Table(shown.html(dtype="Half", search="pool"))
    assert table.tags.count("tr") == 2 and {"table", "caption", "th"} <= set(table.tags) and "pool" in table.data
    assert "MaxPool" in table.data and "softmax" not in table.data


def test_names_are_escaped():
    table = Table(LayerViewer(layers(first="<script>alert(1)</script>")).html(dtype="all", search=""))
    assert "script" not in table.tags and "<script>alert(1)</script>" in table.data


def test_the_changes_of_another_build_are_shown():
    shown = LayerViewer(layers(), layers("Half"))
    assert "Half instead of Float in 2 kernels" in shown.text(**shown.state)
    with_changes, without = (Table(shown.html(dtype="all", search="", changes=on)).data for on in (True, False))
    assert "1 kernel unchanged" in with_changes and "1 kernel unchanged" not in without


def test_the_changes_are_filtered_like_the_kernels():
    shown = LayerViewer(layers(), layers("Half"))
    assert set(shown.controls["dtype"].options) == {"all", "Float", "Half"}  # types of either build
    pool = shown.html(dtype="all", search="pool", changes=True)
    assert "MaxPool" in pool and "Conv" not in pool.partition("<tbody>")[2] and "unchanged" not in pool
    assert "Softmax" not in shown.html(dtype="Half", search="", changes=True).partition("<tbody>")[2]
    assert "1 kernel unchanged" in shown.html(dtype="Float", search="softmax", changes=True)
    said = shown.text(dtype="Half", search="", changes=True)
    assert "Before: 0 of 3 kernels" in said and "After: 2 of 3 kernels" in said


def test_with_the_changes_the_chart_shows_both_builds():
    shown = LayerViewer(layers(), layers("Half"))
    both, one = (shown.figure(dtype="all", search="", changes=changes) for changes in (True, False))
    assert len(both.axes) == 2 and len(one.axes) == 1
    legends = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in both.axes]
    assert legends == [["computes with Float: 3"], ["computes with Float: 1", "computes with Half: 2"]]


@pytest.mark.parametrize("tables", [(LayerTable(),), (layers(), LayerTable())])
def test_tables_without_kernels_are_refused(tables):
    with pytest.raises(ValueError, match="no kernels to show"):
        LayerViewer(*tables)


def kernel_at(start: float, duration: float = 100.0) -> Event:
    return Event("k", "kernel", start, duration, "stream 7")


def test_a_timeline_says_its_gaps():
    shown = TimelineViewer(Timeline((kernel_at(0), kernel_at(300), kernel_at(450))))
    said = shown.text(**shown.state)
    assert "2 gaps, the longest 200 us, 50 us" in said and "idle GPU (45 %)" in said  # 250 of 550 us
    assert "0 gaps." in shown.text(zoom=(0.3, 0.4), faults=True)
    assert shown.figure(zoom=(0.2, 0.2), faults=False).axes  # both handles on one spot


@pytest.mark.parametrize("events", [(), (kernel_at(5, 0.0),)])
def test_a_timeline_with_nothing_in_it_is_refused(events):
    with pytest.raises(ValueError, match="nothing to zoom into"):
        TimelineViewer(Timeline(events))


def test_a_kernel_under_the_roof():
    kernels = [
        KernelMetrics("copy", 10.0, dram_bytes=2e7, dram_share=0.9, sm_share=0.1),
        KernelMetrics("add", 10.0, dram_bytes=1e7, dram_share=0.9, sm_share=0.1, flops=2e7),
        KernelMetrics("unknown", 10.0),
    ]
    shown = RooflineViewer(kernels, peak_flops=1e14, peak_bandwidth=2e12)
    assert shown.state == {"index": 1}  # the first that has a place on the axes
    assert "2 FLOP per byte, 2 TFLOP/s, which is 50 % of the 4 TFLOP/s that memory would allow" in shown.text(index=1)
    assert "no operations counted, 2 TB/s, 100 % of the bandwidth. It is bound by memory." in shown.text(index=0)
    assert "not measured" in shown.text(index=2)
    rings = [len(shown.figure(index=index).axes[0].lines) for index in (0, 1)]
    assert rings[1] == rings[0] + 2


@pytest.mark.parametrize(("kernels", "peaks"), [([], (1.0, 1.0)), ([KernelMetrics("k", 1.0)], (0.0, 1.0))])
def test_a_roofline_refuses(kernels, peaks):
    with pytest.raises(ValueError, match=r"no kernels|peaks are positive"):
        RooflineViewer(kernels, *peaks)
