"""Text from outside, on one line and without surprises."""

import pytest

from course_lib._util.plain_text import plain, reason


@pytest.mark.parametrize("text", ["naïve", "e\u0301", "ก็ที่", "क्षि", "שָּׁ", "Việt"])
def test_text_of_any_language_stays(text: str) -> None:
    assert plain(text) == text


def test_what_a_terminal_would_obey_is_replaced() -> None:
    assert plain("one\n\ttwo \x1b[31m\u202e three") == "one two \N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER} three"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "[ONNXRuntimeError] : 1 : FAIL : Load model from x.onnx failed:/s/graph/model.cc:256 onnxruntime::Model::Model("
            "onnx::ModelProto&&, const onnxruntime::PathString&, const std::unordered_map<std::string, int>*) Unsupported model IR",
            "Load model from x.onnx Unsupported model IR",
        ),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running Reshape node. Name:'/r' "
            "Status Message: /s/reshape_helper.h:45 onnxruntime::Helper::Helper(const onnxruntime::TensorShape&, bool) "
            "size was false. The input cannot be reshaped (now)\n\nStacktrace:\n",
            "Reshape node '/r': size was false. The input cannot be reshaped (now)",
        ),
        ("a.cc:1 virtual onnxruntime::Status onnxruntime::F::Run(int) const::<lambda(int, X)> [with T = int] bad", "bad"),
        ("upsamplebase.h:548 ScalesValidation Scale value should be greater than 0.", "Scale value should be greater than 0."),
        (
            "Exception from src/a.cpp:104:\nException from src/b.cpp:67:\nCheck 'x' failed at src/c.cpp:38:\nNo",
            "Check 'x' failed: No",
        ),
        ("", "RuntimeError"),
        ("1:\n2", "1: 2"),
    ],
)
def test_a_reason_is_the_cause_without_the_librarys_source(message: str, expected: str) -> None:
    assert reason(RuntimeError(message)) == expected
