"""Lecture 15's figure of the recorded decoder shows the record's intervals, and says what was not measured."""

from __future__ import annotations

import pytest

from course_lib.benchmark import recorded
from course_lib.teaching.generation.decoder_record import speeds

PLUGIN = "TensorRT fp16, cache plugin + CUDA graph"
GRAPH = "cuda graph fp16"


def test_speeds_are_those_of_the_record() -> None:
    record = recorded("gpt2_h200")
    row = next(row for row in record.rows if row["case"] == "decode-64" and row["candidate"] == PLUGIN)
    found = speeds(record, PLUGIN, GRAPH)
    assert list(found) == ["decode-1", "decode-8", "decode-64", "prefill-1x128", "prefill-1x1024"]
    assert found["decode-64"].median == row["speedup"][GRAPH]["median"]
    times = {row["candidate"]: row["ms"] for row in record.rows if row["case"] == "decode-64" and "ms" in row}
    assert found["decode-64"].median == pytest.approx(times[GRAPH] / times[PLUGIN], rel=0.02)  # faster is larger than 1
