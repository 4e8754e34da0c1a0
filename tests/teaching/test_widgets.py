"""What each view says, against numbers computed by hand, and what it rejects. Its code runs in QuickJS; a browser draws it elsewhere."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
import quickjs

from course_lib.benchmark import sqnr_db
from course_lib.benchmark.records import RESULTS
from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.precision.formats import FORMATS, int8
from course_lib.profiling import Event, KernelMetrics, Timeline, read_ncu, read_torch_trace
from course_lib.teaching.widgets import LayerViewer, PrecisionExplorer, ProfileExplorer, RooflineViewer, TimelineViewer
from course_lib.teaching.widgets.view import View, source

RECORDED = RESULTS / "profiles_h200"


def run(script: str, expression: str, *values: Any) -> Any:
    """The value of a JavaScript function of a view's script."""
    context = quickjs.Context()
    context.eval(source(script))
    texts = ", ".join(json.dumps(value) for value in values)
    return json.loads(context.eval(f"JSON.stringify(({expression})({texts}))"))


def said(view: View, **changes: Any) -> str:
    """Title and facts for a state."""
    told = run(view.script, "(data, state) => WIDGET.describe(data, state)", view.data, {**view.state, **changes})
    return "; ".join([told["title"], *(f"{word}: {value}" for word, value in told["facts"] if value)])


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


def kernel_at(start: float, duration: float = 100.0) -> Event:
    return Event("k", "kernel", start, duration, "stream 7")


MAKERS = {
    "number": (PrecisionExplorer, {"size": 1e5}),
    "tensor": (lambda: PrecisionExplorer(tensor(), "scores"), {"percent": 20}),
    "profile": (lambda: ProfileExplorer({8: {1: 0.5, 8: 1.0, 32: 3.0}}, [1, 2, 2, 8, 30]), {"high": 16}),
    "layers": (lambda: LayerViewer(layers(), layers("Half")), {"build": 1, "dtype": "FP32"}),
    "timeline": (lambda: TimelineViewer(read_torch_trace(RECORDED / "slow.json.gz")), {"from": 10.0, "to": 20.0}),
    "roofline": (lambda: RooflineViewer(read_ncu(RECORDED / "kernels.csv"), 989e12, 4.8e12), {"index": 2}),
}


@pytest.fixture(params=MAKERS)
def made(request: pytest.FixtureRequest) -> tuple[View, dict[str, Any]]:
    make, moves = MAKERS[request.param]
    return make(), moves  # type: ignore[operator]


def test_a_notebook_gets_the_widget_and_a_page_without_a_kernel_the_script(made):
    shown, _ = made
    bundle = shown._repr_mimebundle_()
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == shown.widget.model_id
    page = bundle["text/html"]
    assert page.count("<script") == page.count("</script>") == 1
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org)", page), "a page loads nothing from elsewhere"
    assert bundle["text/plain"] == repr(shown)


def test_another_state_is_another_sentence(made):
    shown, moves = made
    before = said(shown)
    shown.choose(**moves)
    assert shown.state.items() >= moves.items()
    assert said(shown) != before == said(shown, **shown._first)


def test_every_control_has_a_label_and_a_place_in_the_state(made):
    shown, _ = made
    controls = run(shown.script, "(data) => WIDGET.controls(data)", shown.data)
    assert controls and all(len(one["label"]) > 3 and one["name"] in shown.state for one in controls)
    for one in controls:
        if one["kind"] == "choice":
            assert shown.state[one["name"]] in [value for _, value in one["options"]]


def test_what_cannot_be_chosen_is_named(made):
    with pytest.raises(ValueError, match="not color"):
        made[0].choose(color="red")


def test_text_of_a_submission_cannot_leave_the_script():
    page = LayerViewer(layers(first="</script><script>alert(1)</script>")).html()
    assert page.count("</script>") == 1


@pytest.mark.parametrize("name", FORMATS)
def test_the_browser_rounds_as_the_library(name):
    random = np.random.default_rng(0)
    scale = 0.37
    format_ = int8(scale) if name == "INT8" else FORMATS[name]
    limits = np.log10([max(format_.smallest / 4, 1e-45), min(format_.largest * 4, 3e38)])
    values = 10 ** random.uniform(*limits, 300) * random.choice([-1, 1], 300)
    values = np.concatenate(
        [values, [format_.largest, format_.smallest_normal, 0.4 * format_.smallest, format_.smallest, 0.0, 1.0, -3.0]]
    )
    values = values.astype(np.float32).astype(float)  # TF32 is rounded from FP32: no double rounding
    data = {**PrecisionExplorer().data}
    look = (
        "(data, name, scale, all) => { const one = formats(data, {scale}).find((f) => f.name === name);"
        " return all.map((v) => [String(stored(one, v)), bits(one, v), spacing(one, v)]); }"
    )
    for value, (nearest, bits, spacing) in zip(values, run("number", look, data, name, scale, values.tolist()), strict=True):
        expected = float(format_.round(value))
        if not math.isnan(expected):
            assert float(nearest) == pytest.approx(expected), value
        assert math.isnan(expected) == (nearest == "NaN") and tuple(bits) == format_.bits(value), value
        if not math.isnan(expected):
            magnitude = min(max(abs(value), format_.smallest_normal), format_.largest)
            step = scale if name == "INT8" else 2.0 ** (math.frexp(magnitude)[1] - 1 - format_.mantissa_bits)
            assert spacing == pytest.approx(step), value


@pytest.mark.parametrize(
    ("value", "name", "scale", "title", "text"),
    [
        (70_000, "FP16", 1, "beyond FP16: the largest number is 65504, so a cast gives inf", "stored: inf"),
        (500, "FP8 E4M3", 1, "so a cast gives nan", "stored: nan"),
        (1e-8, "FP16", 1, "too small for FP16: it becomes 0", "10⁻⁸ away"),
        (3e-7, "FP16", 1, "subnormal", "10⁻⁸ away"),
        (-5, "INT8", 0.01, "clipped to -1.28", "off by: 3.72"),
        (0, "BF16", 1, "0 % off", "off by: 0;"),
        (1, "TF32", 1, "0 % off", "next number: 0.000977 away"),
        (-0.1, "FP16", 1, "0.0244 % off", "stored: -0.0999755859"),
    ],
)
def test_one_number(value, name, scale, title, text):
    told = said(PrecisionExplorer(), size=abs(value), negative=value < 0, format=name, scale=scale)
    assert title in told and text in told


def test_the_quality_of_a_tensor_is_that_of_its_quantized_copy():
    shown = PrecisionExplorer(tensor(), "scores")
    values = tensor().astype(np.float64)
    threshold = 4.0  # 20 % of the largest
    copy = np.clip(np.rint(values / (threshold / 127)), -128, 127) * (threshold / 127)
    want = 10 * np.log10(np.sum(values**2) / np.sum((copy - values) ** 2))
    assert shown.data["curves"]["INT8"][19] == pytest.approx(want, abs=1e-3)
    told = said(shown, percent=20)
    assert f"INT8 up to 4 clips 0.1 % and leaves {want:.1f} dB" in told  # 20 and -15
    assert shown.data["plain"]["FP16"] > shown.data["plain"]["BF16"] > max(shown.data["curves"]["INT8"])
    assert f"best threshold for FP8 E4M3: {1 + int(np.argmax(shown.data['curves']['FP8 E4M3']))} %" in said(
        shown, format="FP8 E4M3"
    )


def test_a_large_tensor_is_sampled_and_says_so():
    values = np.random.default_rng(1).normal(size=100_000).astype(np.float32)
    shown = PrecisionExplorer(values, "x")
    assert "100,000 values (SQNR from 50,000 of them)" in said(shown)
    largest = float(np.abs(values).max())
    assert shown.data["curves"]["INT8"][99] == pytest.approx(sqnr_db(values, int8(largest / 127).round(values)), abs=0.2)


def test_a_profile_over_traffic():
    shown = ProfileExplorer({5: {1: 1.0, 9: 9.0}}, [1, 3, 5, 9, 5])
    assert shown.state == {"low": 1, "opt": 5, "high": 9}  # the measured opt, and all requests that came
    told = said(shown, low=2, high=8)
    assert "40 % rejected" in told and "rejected: 2 of 5 requests (of sizes 1 to 9)" in told
    assert "tuned for 5: mean 4.33 ms, slowest 5 ms" in told  # 3, 5, 5: the curve is a straight line
    assert "rejected: 0 of 5 requests" in said(shown)
    assert "Not a profile" in said(shown, low=6, high=8)
    none = said(ProfileExplorer({8: {1: 1.0, 9: 9.0}}, [1, 9]), low=7, high=8)
    assert "2 of 2" in none and "tuned for 8: mean" not in none


def test_a_node_of_two_kernels_has_a_row_with_each():
    def rows(collapsed: bool, *kernels: list[int]) -> Any:
        build = {"nodes": ["/gemm", "/relu", "/shape"], "kernels": [{"nodes": nodes} for nodes in kernels]}
        return [(row["nodes"], row["kernels"]) for row in run("layers", "rowsOf", build, collapsed)]

    assert rows(True, [0], [0, 1], []) == [([0], [0]), ([0, 1], [1])]
    assert rows(False, [0], [0, 1], []) == [([0], [0, 1]), ([1], [1]), ([2], [])]


def test_layers_are_filtered_by_type_and_by_words():
    shown = LayerViewer(layers("Half"))
    assert "3 kernels for 4 ONNX nodes; shown: 2" in said(shown, dtype="FP16")
    assert "shown: 1" in said(shown, search="conv relu") and "shown: 0" in said(shown, search="conv", dtype="FP32")
    assert "shown: 1" in said(shown, search="/SOFTMAX")
    assert "read and written: 128 B for N = 1 (batch 1)" in said(shown)


def test_a_search_that_finds_nothing_here_says_where_it_finds_something():
    both = LayerViewer(layers("Half", first="gemm"), layers())
    assert "matches: 1 with another type, 1 in the build after (FP32)" in said(both, search="/conv", dtype="FP32")
    assert "matches: 1 with another type in the build before (FP16)" in said(both, build=1, search="gemm", dtype="FP32")
    assert "matches: none in either build" in said(both, search="absent")
    assert "matches: none in this build" in said(LayerViewer(layers()), search="absent")
    assert run("layers", "matched", ["Conv + Relu", "gemm_3", "/block/conv1"], "BLOCK") == "/block/conv1"
    timeline = TimelineViewer(Timeline((kernel_at(0), Event("copy", "copy", 900, 10, "stream 7"), kernel_at(1900))))
    assert "found: 2 events match (k);" in said(timeline, search="k")
    assert "2 events match (k), 1 of them in this window;" in said(timeline, search="K", **{"from": 1, "to": 2})
    outside = "1 event matches (copy), none of them in this window: the first one starts at 0.9 ms;"
    assert outside in said(timeline, search="copy", **{"from": 0, "to": 0.2})
    assert "0 events match; the names are k, copy;" in said(timeline, search="gemm")


def test_a_picked_kernel_is_told_with_what_became_of_it():
    shown = LayerViewer(layers(), layers("Half"))
    told = said(shown, kernel=0)
    assert "Kernel 1, Conv + Relu; reads: FP32" in told and "in after (FP16): kept, 1 kernel" in told
    assert "reads, writes FP32 before, FP16 after" in told
    assert "before (FP32): kept, 1 kernel; reads, writes FP32 before, FP16 after" in said(shown, build=1, kernel=0)
    assert "after (FP16)" not in said(shown, kernel=2)  # the softmax stays as it is


def test_a_timeline_says_its_gaps():
    shown = TimelineViewer(Timeline((kernel_at(0), kernel_at(300), kernel_at(450))))
    told = said(shown)
    assert "gaps: 2, the longest 200 µs, 50 µs" in told and "idle GPU (45 %)" in told  # 250 of 550 us
    assert "GPU busy 100 % of 100 µs; gaps: 0;" in said(shown, **{"from": 0.3, "to": 0.4})
    assert "busy 0 %" in said(shown, **{"from": 0.2, "to": 0.2})  # both ends on one spot
    assert "chosen: k (kernel), 100 µs, from 0.3 ms" in said(shown, event=1)
    assert "3 events match" in said(shown, search="K")


def test_a_window_of_a_timeline_is_as_busy_as_the_library_says():
    timeline = read_torch_trace(RECORDED / "slow.json.gz")
    shown = TimelineViewer(timeline)
    for start, end in ((10.0, 20.0), (30.0, 30.5), (52.0, 54.0)):
        part = timeline.window(1e3 * start, 1e3 * end)
        told = said(shown, **{"from": start, "to": end})
        assert f"busy {100 * part.busy_us / (1e3 * (end - start)):.0f} % of" in told
        assert f"gaps: {len(part.gaps()):,}" in told


def test_short_events_share_a_bar_that_knows_how_much_of_it_they_fill():
    draw = "(places) => { const bars = new Map(); places.forEach((at) => join(bars, 'row', at, 0.5)); return bars.get('row'); }"
    bars = run("timeline", draw, [*range(40), 90, 92])
    assert [(bar["left"], bar["right"], bar["filled"]) for bar in bars] == [(0, 39.5, 20), (90, 90.5, 0.5), (92, 92.5, 0.5)]


def test_a_kernel_under_the_roof():
    kernels = [
        KernelMetrics("copy", 10.0, dram_bytes=2e7, dram_share=0.9, sm_share=0.1),
        KernelMetrics("add", 10.0, dram_bytes=1e7, dram_share=0.9, sm_share=0.1, flops=2e7),
        KernelMetrics("unknown", 10.0),
    ]
    shown = RooflineViewer(kernels, peak_flops=1e14, peak_bandwidth=2e12)
    assert shown.state == {"index": 1}  # the first that has a place on the axes
    assert "reaches 50 % of its roof" in said(shown) and "speed: 2 of the 4 TFLOP/s that memory would allow" in said(shown)
    assert "no operations were counted; takes: 10 µs; moves: 2 TB/s, 100 % of the bandwidth; bound by: memory" in said(
        shown, index=0
    )
    assert "not measured" in said(shown, index=2)


REJECTED = [
    *((PrecisionExplorer, (values,), message) for values, message in (
        (np.zeros(10), "nothing but zeros"), (np.array([1.0, math.nan]), "NaN"), (np.array([]), "found 0"), (np.arange(5), "of int64"),
    )),
    *((ProfileExplorer, ({1: curve}, [1]), "the curve of opt 1 must") for curve in (
        {1: 1.0}, {0: 1.0, 2: 1.0}, {1: -1.0, 2: 1.0}, {1: 1.0, 2: math.nan},
    )),
    *((ProfileExplorer, ({1: {1: 1, 2: 2}}, requests), "requests must") for requests in ([], [0], [1.5])),
    *((LayerViewer, tables, "no kernels to show") for tables in ((LayerTable(),), (layers(), LayerTable()))),
    *((TimelineViewer, (Timeline(events),), "nothing to zoom into") for events in ((), (kernel_at(5, 0.0),))),
    (RooflineViewer, ([], 1.0, 1.0), "no kernels"),
    (RooflineViewer, ([KernelMetrics("k", 1.0)], 0.0, 1.0), "peaks are positive"),
]  # fmt: skip


@pytest.mark.parametrize(("view", "arguments", "message"), REJECTED)
def test_what_cannot_be_shown_is_rejected(view, arguments, message):
    with pytest.raises(ValueError, match=message):
        view(*arguments)
