"""Lecture 15's figure of the recorded decoder shows the record's intervals, and says what was not measured."""

from __future__ import annotations

import pytest

from course_lib import style
from course_lib.benchmark import recorded
from course_lib.teaching.generation.decoder_record import draw_speeds, speeds

PLAIN = "TensorRT fp16 + CUDA graph"
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


def test_a_candidate_that_failed_has_no_speed() -> None:
    record = recorded("gpt2_h200")
    assert speeds(record, "onnxruntime fp16", GRAPH) == {}
    assert list(speeds(record, PLAIN, GRAPH)) == ["decode-1", "prefill-1x128"]


def test_the_figure_names_its_axes_and_what_is_missing() -> None:
    figure = draw_speeds(recorded("gpt2_h200"), {PLAIN: "plain", PLUGIN: "plugin"}, GRAPH, "Title")
    (axes,) = figure.axes
    assert style.alt_text(figure) == f"Title. speed over {GRAPH} (x) over case"
    assert len(axes.patches) == 7
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("not measured") == 3
    assert "1.72x" in texts
