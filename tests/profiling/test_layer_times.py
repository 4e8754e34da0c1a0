"""Times of layers: recorded by TensorRT's IProfiler, and made up so that the right answer is known."""

import gzip
import json
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from course_lib import style
from course_lib.benchmark.records import RESULTS
from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.profiling.layer_tables.layer_times import LayerTimings

RECORDED = RESULTS / "tensorrt86_h200"
NAMES, RUNS = ("conv", "relu", "gemm"), [[3.0, 1.0, 2.0], [5.0, 1.0, 4.0], [4.0, 0.0, 2.0]]
ROWS = [[name, ms] for run in RUNS for name, ms in zip(NAMES, run, strict=True)]


def recorded(name: str) -> str:
    return gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()).decode()


def resnet(precision: str) -> LayerTimings:
    rows = json.loads(recorded(f"prof_{precision}"))
    return LayerTimings.from_rows(rows).with_table(parse_inspector(recorded(f"r50_{precision}")))


def kernel(name: str, dtype: str, *nodes: str, kind: str = "kgen") -> Layer:
    return Layer(name, kind, inputs=(LayerTensor("x", (1, 4), dtype),), onnx_nodes=nodes)


TABLE = LayerTable(
    (kernel("conv", "Half", "/conv", "/relu"), kernel("relu", "Float"), kernel("gemm", "Half", "/gemm")),
    {"/conv": "Conv", "/relu": "Relu", "/gemm": "Gemm"},
)


# ---- runs


def test_runs_are_found_by_the_names_that_repeat() -> None:
    timings = LayerTimings.from_rows(ROWS)
    assert timings.names == NAMES and timings.ms.tolist() == RUNS
    assert timings.layer_ms.tolist() == [4, 1, 2] and timings.total_ms == 7


def test_rows_that_are_no_runs_are_rejected() -> None:
    with pytest.raises(ValueError, match="3 layers repeat, the last run has only 1 of them"):
        LayerTimings.from_rows(ROWS[:-2])
    for row in (["conv"], ["conv", "1.0"], [1.0, "conv"], ["conv", -1.0], ["conv", float("nan")], ["conv", None]):
        with pytest.raises(ValueError, match="row 1: expected \\[layer name, milliseconds\\]"):
            LayerTimings.from_rows([["conv", 1.0], row])


def test_nothing_measured_is_nothing() -> None:
    timings = LayerTimings.from_rows([])
    assert timings.total_ms == 0 and timings.layers() == timings.heaviest() == () and timings.needed_for(0.5) == 0
    assert timings.takeaway() == "0 of 0 layers take half of 0 ms"
    assert style.png(timings.plot()).startswith(b"\x89PNG") and "<table>" in timings._repr_html_()


# ---- what takes long


def test_the_heaviest_and_their_shares() -> None:
    timings = LayerTimings.from_rows(ROWS)
    assert [(layer.name, layer.ms) for layer in timings.heaviest(2)] == [("conv", 4), ("gemm", 2)]
    assert timings.heaviest(1)[0].share == pytest.approx(4 / 7)
    assert timings.needed_for(0.5) == 1 and timings.needed_for(0.6) == 2 and timings.needed_for(1.0) == 3
    assert timings.takeaway() == "1 of 3 layers take half of 7 ms"


def test_sums_by_operator_and_by_datatype() -> None:
    timings = LayerTimings.from_rows(ROWS).with_table(TABLE)
    assert timings.by_operator() == {"Conv + Relu": 4, "Gemm": 2, "kgen": 1}
    assert timings.by_dtype() == {"FP16": 6, "FP32": 1}
    assert LayerTimings.from_rows(ROWS).by_dtype() == LayerTimings.from_rows(ROWS).by_operator() == {"unknown": 7}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_recorded_profile_fits_its_layer_table(precision: str) -> None:
    timings = resnet(precision)
    rows = json.loads(recorded(f"prof_{precision}"))
    assert len(timings.ms) == 3 and len(rows) == 3 * len(timings.names)
    assert timings.table is not None and {layer.name for layer in timings.table} == set(timings.names)
    assert all(layer.layer is not None and layer.layer.name == layer.name for layer in timings.layers())
    per_run = [
        sum(ms for _, ms in rows[start : start + len(timings.names)]) for start in range(0, len(rows), len(timings.names))
    ]
    assert timings.ms.sum(axis=1) == pytest.approx(per_run)
    assert timings.total_ms == pytest.approx(float(np.median(per_run)), rel=0.02)
    assert sum(timings.by_dtype().values()) == sum(timings.by_operator().values()) == pytest.approx(timings.total_ms)


# ---- from ONNX Runtime


def profile(*runs: tuple[int, ...]) -> str:
    rows = []
    for number, times in enumerate(runs):
        for place, duration in enumerate(times):
            arguments = {"op_name": "Conv", "node_index": str(place)}
            start = 1000 * number + 100 * place
            rows.append(
                {"cat": "Node", "name": f"n{place}_kernel_time", "ts": start, "dur": duration, "tid": 1, "args": arguments}
            )
    return json.dumps(rows)


def test_runs_of_a_profile_of_onnxruntime() -> None:
    timings = LayerTimings.from_ort_profile(profile((90, 50), (10, 20), (30, 40)), skip=1)
    assert timings.names == ("n0", "n1") and timings.ms.tolist() == [[0.010, 0.020], [0.030, 0.040]]
    for text, skip, says in (
        ("no profile", 0, "found 0 nodes that ran no times"),
        (profile((1, 2), (3,)), 0, "found 2 nodes that ran 1 or 2 times"),
        (profile((1, 2), (3, 4)), 2, "more than 2 runs, found 2 nodes that ran 2 times"),
    ):
        with pytest.raises(ValueError, match=says):
            LayerTimings.from_ort_profile(text, skip=skip)


# ---- shown


def bars(figure: Any) -> list[Rectangle]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle) and patch.get_width() > 0]


def test_the_figure_shows_the_heaviest_and_sums_the_rest() -> None:
    figure = resnet("fp16").plot(5, color="dtype")
    axes = figure.axes[0]
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(labels) == 6 and labels[-1] == "54 others" and len(bars(figure)) == 6
    drawn = [bar.get_width() for bar in bars(figure)][:5]
    assert drawn == [layer.ms for layer in resnet("fp16").heaviest(5)]
    assert axes.get_title() == resnet("fp16").takeaway() == "18 of 59 layers take half of 1.98 ms"
    assert axes.get_xlabel().endswith("(ms)")
    assert any("beyond the scale" in text.get_text() for text in axes.texts)
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [text.partition(":")[0] for text in legend] == ["FP16", "unknown"] and "94%" in legend[0]
    assert style.png(figure).startswith(b"\x89PNG")


def test_a_table_for_the_notebook_is_escaped_and_complete() -> None:
    rows = [[f"<script>{i}", 20.0 - i] for i in range(18)]
    html = LayerTimings.from_rows(rows)._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;0" in html and "3 others" in html
    assert html.count("<tr>") == 1 + 15 + 1 and "(1 run, medians)" in html


def test_json_holds_every_layer() -> None:
    values = json.loads(json.dumps(LayerTimings.from_rows(ROWS).with_table(TABLE).to_json()))
    assert values["runs"] == 3 and values["total_ms"] == 7
    assert values["layers"][0] == {
        "name": "conv",
        "ms": 4.0,
        "share": pytest.approx(4 / 7),
        "operators": "Conv + Relu",
        "dtypes": "FP16",
    }
    assert [row["name"] for row in values["layers"]] == ["conv", "relu", "gemm"]
