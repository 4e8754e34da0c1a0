"""Lecture 13 and 14 say what the records of Torch-TensorRT 2.2 and of ONNX Runtime's TensorRT provider say."""

from __future__ import annotations

import pytest

from course_lib.benchmark import recorded
from course_lib.benchmark.records import Record
from course_lib.errors import CourseError
from course_lib.teaching.torch_tensorrt import draw_errors


@pytest.fixture(scope="module")
def torch_tensorrt() -> Record:
    return recorded("torch_tensorrt_h200")


@pytest.fixture(scope="module")
def ort() -> Record:
    return recorded("ort_tensorrt_h200")


def test_a_case_that_was_not_recorded_names_those_that_were(torch_tensorrt: Record) -> None:
    with pytest.raises(CourseError, match=r"no case 'moon' in section 'cuda_graph': there are called once, captured"):
        torch_tensorrt.case("cuda_graph", "moon")


def test_one_spelling_of_attention_exchanges_query_and_value(torch_tensorrt: Record) -> None:
    rows = {row["case"]: row["errors"] for row in torch_tensorrt.section("attention") if "errors" in row}
    wrong = [case for case, errors in rows.items() if errors["query, key, value"] > 1e-2]
    assert len(rows) == 8 and wrong == ["fused qkv, unbind; all kernels"]
    assert rows[wrong[0]]["value, key, query"] < 1e-5 < 1 < rows[wrong[0]]["query, key, value"]
    assert all(errors["query, key, value"] < 1e-5 for case, errors in rows.items() if case not in wrong)


def test_a_batch_outside_the_range_loses_rows_without_an_exception(torch_tensorrt: Record) -> None:
    for form in ("fx", "Python runtime", "exported program", "TorchScript"):
        for given, returned in ((8, 8), (32, 32), (33, 32), (64, 32)):
            row = torch_tensorrt.case("batches", f"{form}, 1 to 32: batch {given}")
            assert (row["failed"], row["rows_returned"]) == (None, returned), row["case"]
            assert row["relative_error"] < 1e-2
    assert torch_tensorrt.case("batches", "fixed at 8: batch 4")["rows_returned"] == 8
    assert "name for a dynamic input" in torch_tensorrt.case("batches", "a range without a name")["failed"]


def test_the_encoder_is_right_for_a_fixed_batch_and_fails_for_a_range(torch_tensorrt: Record) -> None:
    assert torch_tensorrt.case("attention", "the course's encoder")["relative_error"] < 1e-5
    failed = torch_tensorrt.case("batches", "the course's encoder, 1 to 8")["failed"]
    assert failed.startswith("TypeError") and "IShuffleLayer" in failed


def test_tf32_makes_most_of_the_error_and_a_half_module_has_half_outputs(torch_tensorrt: Record) -> None:
    rows = {row["case"]: row for row in torch_tensorrt.section("formats")}
    assert rows["fp32"]["relative_error"] > 10 * rows["fp32, disable_tf32=True"]["relative_error"]
    assert rows["module.half() alone"]["output_type"] == "torch.float16"
    assert rows["fp32 module, enabled_precisions={torch.half}"]["output_type"] == "torch.float32"


def test_a_second_batch_size_fails_with_the_default_settings(torch_tensorrt: Record) -> None:
    assert "SymInt" in torch_tensorrt.case("first_calls", "default: call 3, batch 4")["failed"]
    first, again = (torch_tensorrt.case("first_calls", f"default: call {number}, batch 8") for number in (1, 2))
    assert first["seconds"] > 1000 * again["seconds"]


def test_a_file_loads_where_torch_tensorrt_was_imported(torch_tensorrt: Record) -> None:
    for form in ("torchscript, torch.jit.save", "exported program, torch.export.save", "fx, torch.save"):
        right, other = (
            torch_tensorrt.case("saving", f"load: {form}; torch_tensorrt {how}") for how in ("imported", "not imported")
        )
        assert right["relative_error"] < 1e-2
        assert ("failed" in other) != (form == "fx, torch.save"), "a pickle imports what it needs"


def test_every_format_returns_a_tuple_and_the_course_a_tensor(torch_tensorrt: Record) -> None:
    returned = {row["case"]: row["returns"] for row in torch_tensorrt.section("formats") if "returns" in row}
    assert len(returned) == 4 and set(returned.values()) == {"tuple"}


def test_a_replayed_graph_answers_new_inputs(torch_tensorrt: Record) -> None:
    row = torch_tensorrt.case("cuda_graph", "captured, replayed with new inputs")
    assert row["failed"] is None
    assert all(value < 1e-2 for name, value in row.items() if name.startswith("relative_error"))


def test_the_courses_own_functions(torch_tensorrt: Record) -> None:
    compiled = torch_tensorrt.case("course", "compile_module, fp32, batch 1 to 32")
    assert compiled["failed"] is None and compiled["returns"] == "Tensor" and compiled["relative_error"] < 1e-2
    assert "run in PyTorch" in torch_tensorrt.case("course", "compile_module, an operator without a converter")["failed"]


def test_errors_are_drawn_with_their_numbers() -> None:
    figure = draw_errors({"right": 4e-7, "wrong": 1.4}, "one is wrong")
    assert {text.get_text() for text in figure.axes[0].texts} == {"4.0e-07", "1.4e+00"}


def test_the_provider_takes_the_whole_classifier(ort: Record) -> None:
    row = ort.case("fallback", "classifier, all providers")
    assert len(row["providers"]) == 3 and {node["provider"] for node in row["nodes"]} == {"TensorrtExecutionProvider"}
    assert len(row["nodes"]) == 1 and row["relative_error"] < 1e-2


def test_without_a_profile_the_engine_is_built_inside_run(ort: Record) -> None:
    session, first, second = ort.section("batches")[:3]
    assert session["seconds"] < 1 < first["seconds"] and second["seconds"] < first["seconds"] / 1000


def test_a_profile_is_built_with_the_session_and_keeps_its_range(ort: Record) -> None:
    inside = [ort.case("profiles", f"profile 1 to 32: batch {size}") for size in (1, 8, 32)]
    assert all(row["failed"] is None and row["relative_error"] < 1e-2 and row["seconds"] < 1 for row in inside)
    assert ort.case("profiles", "profile 1 to 32: session")["seconds"] > 1
    assert "setInputShape" in ort.case("profiles", "profile 1 to 32: batch 33")["failed"]
