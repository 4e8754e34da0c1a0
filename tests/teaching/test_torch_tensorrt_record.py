"""Lecture 13 and 14 say what the records of Torch-TensorRT 2.2 and of ONNX Runtime's TensorRT provider say."""

from __future__ import annotations

import pytest

from course_lib.benchmark import recorded
from course_lib.errors import CourseError

TORCH_TENSORRT, ORT = recorded("torch_tensorrt_h200"), recorded("ort_tensorrt_h200")


def test_a_case_that_was_not_recorded_names_those_that_were() -> None:
    with pytest.raises(CourseError, match=r"no case 'moon' in section 'cuda_graph': there are called once, captured"):
        TORCH_TENSORRT.case("cuda_graph", "moon")


def test_one_spelling_of_attention_exchanges_query_and_value() -> None:
    rows = {row["case"]: row["errors"] for row in TORCH_TENSORRT.section("attention") if "errors" in row}
    wrong = [case for case, errors in rows.items() if errors["query, key, value"] > 1e-2]
    assert len(rows) == 8 and wrong == ["fused qkv, unbind; all kernels"]
    assert rows[wrong[0]]["value, key, query"] < 1e-5 < 1 < rows[wrong[0]]["query, key, value"]
    assert all(errors["query, key, value"] < 1e-5 for case, errors in rows.items() if case not in wrong)


def test_a_batch_outside_the_range_loses_rows_without_an_exception() -> None:
    for form in ("fx", "Python runtime", "exported program", "TorchScript"):
        for given, returned in ((8, 8), (32, 32), (33, 32), (64, 32)):
            row = TORCH_TENSORRT.case("batches", f"{form}, 1 to 32: batch {given}")
            assert (row["failed"], row["rows_returned"]) == (None, returned), row["case"]
            assert row["relative_error"] < 1e-2
    assert TORCH_TENSORRT.case("batches", "fixed at 8: batch 4")["rows_returned"] == 8
    assert "name for a dynamic input" in TORCH_TENSORRT.case("batches", "a range without a name")["failed"]


def test_a_file_loads_where_torch_tensorrt_was_imported() -> None:
    for form in ("torchscript, torch.jit.save", "exported program, torch.export.save", "fx, torch.save"):
        right, other = (
            TORCH_TENSORRT.case("saving", f"load: {form}; torch_tensorrt {how}") for how in ("imported", "not imported")
        )
        assert right["relative_error"] < 1e-2
        assert ("failed" in other) != (form == "fx, torch.save"), "a pickle imports what it needs"


def test_the_provider_takes_the_whole_classifier() -> None:
    row = ORT.case("fallback", "classifier, all providers")
    assert len(row["providers"]) == 3 and {node["provider"] for node in row["nodes"]} == {"TensorrtExecutionProvider"}
    assert len(row["nodes"]) == 1 and row["relative_error"] < 1e-2
