"""ONNX Runtime's profiles are read as they are: one row a node however many runs, and no text whatsoever breaks the reader."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import parser

from course_lib.engines import LayerTensor
from course_lib.engines.backends.onnxruntime.layers import dtype_word, ort_kernel_ms, parse_ort_profile

EXAMPLES = int(os.environ.get("COURSE_FUZZ_EXAMPLES", "350"))  # for each of four tests


def event(name: str, start: int, duration: int, *, index: int = 0, thread: int = 1, **arguments: Any) -> dict[str, Any]:
    """One row as ONNX Runtime 1.31 writes it, without the memory statistics."""
    known = {"op_name": "Conv", "provider": "CPUExecutionProvider", "node_index": str(index), "thread_scheduling_stats": ""}
    row = {"cat": "Node", "pid": 7, "tid": thread, "dur": duration, "ts": start, "ph": "X", "name": f"{name}_kernel_time"}
    return {**row, "args": {**known, "input_type_shape": [], "output_type_shape": [], **arguments}}


def run_event(start: int, duration: int) -> dict[str, Any]:
    return {"cat": "Session", "pid": 7, "tid": 1, "dur": duration, "ts": start, "ph": "X", "name": "model_run", "args": {}}


CONV = {
    "input_type_shape": [{"float": [2, 1, 32, 32]}, {"float": [16, 1, 3, 3]}],
    "output_type_shape": [{"float16": [2, 16, 32, 32]}],
}
TWO_RUNS = [
    event("/stem/Conv", 100, 40, index=3, **CONV),
    event("/head/Gemm", 145, 5, index=9, op_name="Gemm"),
    run_event(98, 60),
    event("/stem/Conv", 200, 30, index=3, **CONV),
    event("/head/Gemm", 231, 7, index=9, op_name="Gemm"),
    run_event(199, 50),
]


def test_one_row_a_node_however_many_runs() -> None:
    table = parse_ort_profile(json.dumps(TWO_RUNS), {"/stem/Conv": "Conv"})
    conv, gemm = table
    assert (conv.name, conv.kind, conv.tactic) == ("/stem/Conv", "Conv", "CPUExecutionProvider")
    assert conv.inputs == (LayerTensor("", (2, 1, 32, 32), "Float"), LayerTensor("", (16, 1, 3, 3), "Float"))
    assert conv.outputs == (LayerTensor("", (2, 16, 32, 32), "Half"),)
    assert gemm.name == "/head/Gemm" and gemm.is_kernel and gemm.onnx_nodes == ()
    assert table.operators == {"/stem/Conv": "Conv"}
    assert ort_kernel_ms(json.dumps(TWO_RUNS)) == [("/stem/Conv", [0.040, 0.030]), ("/head/Gemm", [0.005, 0.007])]
    in_order = [layer.name for layer in parse_ort_profile(json.dumps(TWO_RUNS[::-1]))]
    assert in_order == ["/stem/Conv", "/head/Gemm"], "the order of execution, not of the file"


@pytest.mark.parametrize(
    "pair",
    [
        "float Float",
        "FLOAT16 Half",
        "bfloat16 BFloat16",
        "double Double",
        "float8e4m3fn FP8",
        "int8 Int8",
        "uint8 UInt8",
        "int32 Int32",
        "INT64 Int64",
        "bool Bool",
        "complex64 complex64",
    ],
)
def test_datatypes_have_the_words_of_the_layer_tables(pair: str) -> None:
    written, word = pair.split()
    assert dtype_word(written) == word
    table = parse_ort_profile(json.dumps([event("n", 1, 1, input_type_shape=[{written: [4]}])]))
    assert table[0].dtypes == {word}


def profiled(model: onnx.ModelProto, folder: Path, feeds: list[dict[str, np.ndarray]]) -> str:
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    for feed in feeds:
        session.run(None, feed)
    return Path(session.end_profiling()).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def small_profile(small_onnx: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    feed = {"image": np.zeros((8, 1, 32, 32), np.float32)}
    return profiled(onnx.load(small_onnx), tmp_path_factory.mktemp("profile"), [feed] * 4)


def test_a_fresh_profile_has_the_models_nodes_with_their_shapes(small_profile: str, small_onnx: Path) -> None:
    model = onnx.load(small_onnx)
    table = parse_ort_profile(small_profile)
    assert {layer.name: layer.kind for layer in table} == {node.name: node.op_type for node in model.graph.node}
    assert len(table) == len(model.graph.node) == 21
    assert table[0].inputs[0].shape == (8, 1, 32, 32) and table[-1].outputs == (LayerTensor("", (8, 10), "Float"),)
    assert {dtype for layer in table for dtype in layer.dtypes} == {"Float", "Int64"}  # the axes of the mean


def test_nodes_of_one_name_are_two_rows_and_another_thread_is_not_inside() -> None:
    twins = [event("twin", 10, 5, index=1), event("twin", 20, 5, index=2), event("twin", 30, 6, index=1)]
    assert ort_kernel_ms(json.dumps(twins)) == [("twin", [0.005, 0.006]), ("twin", [0.005])]
    assert len(parse_ort_profile(json.dumps(twins))) == 2
    beside = [event("a", 0, 100, index=1), event("b", 10, 20, index=2, thread=2), event("inside", 10, 20, index=3)]
    assert [layer.name for layer in parse_ort_profile(json.dumps(beside))] == ["a", "b"]


def test_kernels_take_no_longer_than_the_run_they_are_in(small_profile: str) -> None:
    runs = [row["dur"] / 1e3 for row in json.loads(small_profile) if row["name"] == "SequentialExecutor::Execute"]
    kernels = np.array([ms for _, ms in ort_kernel_ms(small_profile)]).sum(axis=0)
    assert len(runs) == len(kernels) == 4
    assert all(kernels <= runs) and sum(kernels) > 0.2 * sum(runs)


BRANCHES = """<ir_version: 10, opset_import: ["" : 20]> g (float[n,4] x, bool c) => (float[n,4] y) {
    a = Relu(x)
    b = If (c) <then_branch = t () => (float[n,4] o) { p = Exp(a) o = Neg(p) }, else_branch = e () => (float[n,4] o) { o = Abs(a) }>
    three = Constant<value_int=3>()
    yes = Greater(three, three)
    on = Not(yes)
    z = Loop (three, on, b) <body = l (int64 i, bool k, float[n,4] s) => (bool m, float[n,4] u) { m = Identity(k) q = Sin(s) u = Tanh(q) }>
    y = Neg(z)
}"""


def test_the_body_of_a_branch_or_a_loop_belongs_to_its_node(tmp_path: Path) -> None:
    x = np.ones((2, 4), np.float32)
    text = profiled(parser.parse_model(BRANCHES), tmp_path, [{"x": x, "c": np.array(taken)} for taken in (True, True, False)])
    inside = {"Exp", "Abs", "Sin", "Tanh"}
    assert inside <= {row["args"].get("op_name") for row in json.loads(text)}, "the profile tells them"
    table = parse_ort_profile(text)
    assert Counter(layer.kind for layer in table) >= Counter(["Relu", "If", "Loop", "Neg"])
    assert not inside & {layer.kind for layer in table}
    assert {len(ms) for _, ms in ort_kernel_ms(text)} == {3}, "once a run, although the loop turned three times"


# ---- any text


def read(text: str) -> None:
    table = parse_ort_profile(text)
    assert len(table) == len(ort_kernel_ms(text))
    table.rows(), table.dtype_counts(), json.dumps(table.to_json())
    assert all(isinstance(n, int) for layer in table for tensor in (*layer.inputs, *layer.outputs) for n in tensor.shape)


RECORDED = json.dumps(TWO_RUNS)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, len(RECORDED) - 1))
def test_a_profile_that_was_cut_off_is_empty(end: int) -> None:
    read(RECORDED[:end])
    assert parse_ort_profile(RECORDED[:end]).layers == ()


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(RECORDED)), st.integers(0, 30), st.text(max_size=10)), min_size=1, max_size=6))
def test_any_mutation_of_a_profile_is_read(edits: list[tuple[int, int, str]]) -> None:
    text = RECORDED
    for start, cut, fragment in edits:
        text = text[:start] + fragment + text[start + cut :]
    read(text)
