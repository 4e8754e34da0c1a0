"""Planted weaknesses are found, a node's error is what numpy computes, and a keep list holds what it promises."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from course_lib import style
from course_lib.benchmark.accuracy import relative_error
from course_lib.benchmark.node_sensitivity import Sensitivity, in_percent, sensitivity
from course_lib.benchmark.one_node import runner
from course_lib.errors import BuildError, CourseError, EngineError
from course_lib.models import digits
from course_lib.precision import MinMaxCalibrator, calibrate, cast, fake_quantize, insert_qdq
from course_lib.precision.quantization.emulation import emulate
from tests.exported import exported


def toy(
    body: str, head: str = "g (float[n, 8] x) => (float[n, 8] y)", weights: dict[str, Any] | None = None, opset: int = 20
) -> onnx.ModelProto:
    """A graph whose nodes are called after what they make."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {head} {{ {body} }}')
    for node in model.graph.node:
        node.name = node.output[0]
    for name, value in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
    return model


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def ranked(model: onnx.ModelProto, feeds: Any, **options: Any) -> Sensitivity:
    return sensitivity(model, feeds, progress=False, **options)


def direct(exact: onnx.ModelProto, reduced: onnx.ModelProto, feeds: Any) -> float:
    """The relative error of a whole reduced model, by its formula."""
    want, have = (np.concatenate([runner(model)(batch)[0] for batch in feeds]) for model in (exact, reduced))
    return float(np.linalg.norm(want.astype(float) - have) / np.linalg.norm(want.astype(float)))


# The length of rows, as old code spells it: eight squares of 100 or more sum up to beyond 65 504, though each square and the root
# of the sum fit.
NORM = "h = MatMul (x, w)  squares = Mul (h, h)  sum = ReduceSum <keepdims = 1> (squares, axes)  root = Sqrt (sum)"


def norm_network(end: str) -> onnx.ModelProto:
    model = toy(f"{NORM}  {end}", weights={"w": 100 * np.eye(8)})
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    return model


# ---- planted weaknesses


def test_an_overflow_is_ranked_first_in_fp16_and_is_none_in_bf16() -> None:
    feeds = [{"x": np.random.default_rng(seed).uniform(1, 2, (4, 8)).astype(np.float32)} for seed in range(2)]
    found = ranked(norm_network("y = Div (root, h)"), feeds)
    assert {row.node for row in found.worst(2)} == {"sum", "root"}  # the one that makes it, and the one that reads it
    for row in found.worst(2):
        assert row.deviation.nonfinite == 64 and row.deviation.relative_error == np.inf and row.deviation.argmax_changes == 1
    assert {row.node for row in found.rows[2:]} == {"h", "squares", "y"}
    assert all(0 < row.deviation.relative_error < 2e-3 for row in found.rows[2:])
    kept = found.keep_list(0.01)
    assert kept.met and set(kept.nodes) == {"sum", "root"} and kept.tried[0] == kept.tried[1] == np.inf
    bf16 = ranked(norm_network("y = Div (root, h)"), feeds, dtype="bf16")
    assert len(bf16.rows) == 5 and all(0 < row.deviation.relative_error < 0.01 for row in bf16.rows)
    assert not any(row.deviation.nonfinite for row in bf16.rows)


def test_a_weight_beyond_fp16_is_ranked_first_although_cast_rejects_it() -> None:
    model = toy("a = Mul (x, big)  b = Mul (a, small)  y = Relu (b)", weights={"big": [1e6], "small": [1e-6]})
    found = ranked(model, {"x": normal(4, 8)})
    assert found.rows[0].node == "a" and found.rows[0].deviation.nonfinite == 32
    kept = found.keep_list(0.01)
    assert kept.met and kept.tried[0] == np.inf and "a" in kept.nodes
    cast(model, "fp16", keep=kept.nodes)
    assert ranked(model, {"x": normal(4, 8)}, dtype="bf16").rows[0].deviation.nonfinite == 0


# ---- one node's error


@pytest.mark.parametrize("node", ["h", "r", "y"])
def test_a_half_precision_nodes_error_is_what_numpy_computes(node: str) -> None:
    w, x = normal(8, 8), [normal(5, 8, seed=seed) for seed in (1, 2)]
    model = toy("h = MatMul (x, w)  r = Relu (h)  y = Mul (r, r)", weights={"w": w})

    def half(value: np.ndarray, name: str) -> np.ndarray:
        return value.astype(np.float16).astype(np.float32) if name == node else value

    def network(batch: np.ndarray) -> np.ndarray:
        h = half(half(batch, "h") @ half(w, "h"), "h")
        r = half(np.maximum(half(h, "r"), 0), "r")
        return half(half(r, "y") * half(r, "y"), "y")

    have, want = np.concatenate([network(batch) for batch in x]), np.concatenate([np.square(np.maximum(b @ w, 0)) for b in x])
    (row,) = ranked(model, [{"x": batch} for batch in x], nodes=[node]).rows
    assert row.operator in ("MatMul", "Relu", "Mul")
    assert row.deviation.relative_error == pytest.approx(float(np.linalg.norm(have - want) / np.linalg.norm(want)), rel=1e-3)
    assert row.deviation.max_abs_error == pytest.approx(float(np.abs(have - want).max()), rel=1e-2)
    assert row.deviation.argmax_changes == np.mean(have.argmax(1) != want.argmax(1))


def test_an_int8_nodes_error_is_what_numpy_computes() -> None:
    w, x = normal(8, 8), normal(5, 8, seed=1)
    model = toy("h = MatMul (x, w)  r = Relu (h)  y = MatMul (r, w)", weights={"w": w})
    ranges = {"x": 2.5, "r": 6.0}
    narrow = fake_quantize(np.maximum(x @ w, 0), 6.0) @ fake_quantize(w, np.abs(w).max(0))
    found = ranked(model, {"x": x}, dtype="int8", ranges=ranges)
    assert {row.node for row in found.rows} == {"h", "y"}  # a Relu has nothing to quantize
    (last,) = [row for row in found.rows if row.node == "y"]
    assert last.deviation.relative_error == pytest.approx(relative_error(np.maximum(x @ w, 0) @ w, narrow), rel=1e-3)


# ---- the course's networks


def batches(name: str, split: Any = "test", count: int = 2) -> list[dict[str, np.ndarray]]:
    data = digits(split).tokens() if name == "encoder" else digits(split).images
    return [{"tokens" if name == "encoder" else "image": data[16 * i : 16 * (i + 1)]} for i in range(count)]


@cache
def ranges(name: str) -> Any:
    return calibrate(exported(name), batches(name, "train", 4), MinMaxCalibrator(), progress=False)


def reduced(name: str, dtype: Any, keep: Any) -> onnx.ModelProto:
    if dtype == "int8":
        return insert_qdq(exported(name), ranges(name), exclude=keep)
    return emulate(cast(exported(name), dtype, keep=keep))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("small", "bf16"), *(pytest.param("encoder", dtype, marks=pytest.mark.slow) for dtype in ("fp16", "int8"))],
)
def test_the_keep_list_makes_the_whole_model_pass(name: str, dtype: Any) -> None:
    model, feeds = exported(name), batches(name)
    found = ranked(model, feeds, dtype=dtype, ranges=ranges(name))
    quantized = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul") and weighted(model, node)]
    assert len(found.rows) == len(quantized) if dtype == "int8" else len(found.rows) > len(quantized)
    errors = [row.deviation.relative_error for row in found.rows]
    assert errors == sorted(errors, reverse=True) and 0 <= errors[-1] < errors[0] < 0.05

    tolerance = 0.6 * direct(model, reduced(name, dtype, ()), feeds)
    kept = found.keep_list(tolerance)
    assert kept.met and 0 < len(kept.nodes) < len(found.rows)
    assert kept.nodes == tuple(row.node for row in found.worst(len(kept.nodes)))
    assert direct(model, reduced(name, dtype, kept.nodes), feeds) == pytest.approx(kept.deviation.relative_error, rel=1e-6)
    assert kept.deviation.relative_error <= tolerance
    assert kept.tried[len(kept.nodes) - 1] > tolerance  # one node less is too few
    assert found.keep_list(1.0).nodes == () and found.keep_list(1.0).tried.keys() == {0}


def weighted(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    return node.input[1] in {weight.name for weight in model.graph.initializer}


# ---- how it looks


def test_the_figure_and_the_table_say_what_was_found() -> None:
    found = ranked(toy("a = Mul (x, x)  y = Sub (a, x)"), {"x": np.full((2, 8), 300, np.float32)})
    figure = found.plot()
    (axes,) = figure.axes
    assert figure.get_suptitle() == "fp16: 2 of 2 nodes alone make the outputs overflow, first a"
    assert axes.get_xscale() == "log" and "relative error" in axes.get_xlabel()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "y"]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 1
    finite = ranked(exported("small"), batches("small")).plot(5)
    assert re.search(r"^fp16: /\S+ alone leaves \d+ dB, \d+ times the median", finite.get_suptitle())
    assert len(finite.axes[0].patches) == 5 and style.png(finite).startswith(b"\x89PNG")

    html = found._repr_html_()
    assert "each node reduced alone, the worst 2 of 2" in html and html.count("<tr>") == 3 and ">inf<" in html


@pytest.mark.parametrize(
    ("share", "text"),
    [(2.1, "210 %"), (0.0045, "0.45 %"), (0.994, "99 %"), (12345.6, "1234560 %"), (0.0, "0 %"), (-1.5, "-150 %")],
)
def test_no_percentage_has_an_exponent(share: float, text: str) -> None:
    assert in_percent(share) == text


# ---- what is rejected


RELU, PRODUCT = "a = Relu (x)  y = Neg (a)", "y = MatMul (x, w)"


@pytest.mark.parametrize(
    ("body", "options", "error", "words"),
    [
        (RELU, {"dtype": "fp8"}, CourseError, "dtype must be 'fp16', 'bf16' or 'int8', got 'fp8'"),
        (RELU, {"dtype": "int8"}, CourseError, "INT8 needs the range of each activation: pass ranges=calibrate"),
        (RELU, {"feeds": []}, CourseError, "there is no batch to measure on"),
        (RELU, {"nodes": ["b"]}, CourseError, "nodes names 'b', which the model does not have"),
        (PRODUCT, {"dtype": "int8", "ranges": {}}, CourseError, "no range for tensor 'x', which node 'y' reads"),
        ("y = Log (x)", {"feeds": {"x": -np.ones((2, 8), np.float32)}}, CourseError, "own outputs are empty or not finite"),
        (RELU, {"feeds": {"z": normal(2, 8)}}, EngineError, "onnxruntime rejected a batch: "),
    ],
)
def test_errors_say_what_to_do(body: str, options: dict[str, Any], error: type[CourseError], words: str) -> None:
    model = toy(body, weights={"w": np.eye(8)} if "w" in body else None)
    with pytest.raises(error, match=words):
        ranked(model, **{"feeds": {"x": normal(2, 8)}, **options})


def test_what_is_no_model_is_said() -> None:
    with pytest.raises(BuildError, match=r"nowhere\.onnx cannot be read: No such file"):
        ranked("nowhere.onnx", {})
    with pytest.raises(CourseError, match="no output of a float type"):
        ranked(toy("y = ArgMax (x)", "g (float[n, 8] x) => (int64[1, 8] y)"), {"x": normal(2, 8)})
    model = toy(RELU)
    for name, words in (("a", "two nodes are called 'a'"), ("", "a Neg node has no name")):
        model.graph.node[1].name = name
        with pytest.raises(CourseError, match=words):
            ranked(model, {"x": normal(2, 8)})
    with pytest.raises(EngineError, match="onnxruntime rejects the model"):
        runner(helper.make_model(helper.make_graph([helper.make_node("Nonsense", ["x"], ["y"])], "g", [], [])))
