"""ModelOpt in lectures 5 and 6: a clear message without it, and with it the nodes that the text names."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import onnx
import pytest

from course_lib.benchmark import recorded
from course_lib.errors import CourseError
from course_lib.teaching.modelopt_onnx import autocast, in_fp32, quantize_int8

SQUARES = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { big = Mul(x, x)  y = Sqrt(big) }'


@pytest.fixture
def squares() -> onnx.ModelProto:
    model = onnx.parser.parse_model(SQUARES)
    for node in model.graph.node:
        node.name = f"/{node.op_type}"
    return model


def test_without_modelopt_the_message_says_what_to_install(squares: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelopt", None)
    monkeypatch.setitem(sys.modules, "modelopt.onnx.autocast", None)
    monkeypatch.setitem(sys.modules, "modelopt.onnx.quantization", None)
    with pytest.raises(CourseError, match=r"AutoCast cannot be imported.*pip install 'tensorrt-course\[qat\]'"):
        autocast(squares)
    with pytest.raises(CourseError, match="quantization cannot be imported"):
        quantize_int8(squares, {})


def test_nodes_that_write_fp32_are_found(squares: onnx.ModelProto) -> None:
    assert in_fp32(squares) == ["/Mul", "/Sqrt"]


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("modelopt"), reason="ModelOpt is not installed (extra `qat`): the next test holds its record")
def test_autocast_keeps_what_overflows_only_with_real_data(squares: onnx.ModelProto) -> None:
    real = {"x": np.array([1.0, 2.0, 3.0, 900.0], np.float32)}
    assert in_fp32(autocast(squares)) == []
    assert in_fp32(autocast(squares, real, data_max=65504)) == ["/Mul", "/Sqrt"]


def test_the_record_says_what_the_lecture_says() -> None:
    rows = {(row["network"], row["way"]): row for row in recorded("autocast_cpu").rows}
    without, default, limit, ours = (
        rows["scanner", way]
        for way in (
            "AutoCast without data",
            "AutoCast, 64 inputs",
            "AutoCast, 64 inputs, data_max 65504",
            "cast with a keep list",
        )
    )
    assert without["sqnr_db"] < 0 and without["in_fp32"] == []
    assert len(default["in_fp32"]) == 8 and limit["in_fp32"] == ours["in_fp32"] and len(ours["in_fp32"]) == 4
    assert len({row["kernels"] for key, row in rows.items() if key[0] == "encoder"}) == 1


def test_the_record_of_lecture_6_says_what_its_text_says() -> None:
    entropy, largest, ours = recorded("modelopt_ptq_cpu").rows
    assert set(ours["tensors"]) - set(entropy["tensors"]) == {"/ReduceMean_output_0", "head.weight"}
    assert set(entropy["tensors"]) == set(largest["tensors"]) < set(ours["tensors"])
    assert entropy["sqnr_db"] < largest["sqnr_db"] - 3 and ours["int8_kernels"] == entropy["int8_kernels"] + 1
