"""The figures of lecture 15 say what the numbers and the record say."""

from __future__ import annotations

import pytest

from course_lib.benchmark import recorded
from course_lib.engines import LayerTable
from course_lib.engines.layers import Layer
from course_lib.teaching.generation.arithmetic import PUBLISHED
from course_lib.teaching.generation.decoder_record import speeds
from course_lib.teaching.generation.figures import (
    draw_batch_slots,
    draw_cache,
    draw_kinds,
)
from course_lib.teaching.generation.serving import serve
from tests.teaching.generation.test_serving import Steps, at_once

WAYS = {name: serve(at_once(3, 2, 2), Steps(), slots=2, continuous=name == "continuous") for name in ("static", "continuous")}


def test_each_cache_ends_at_its_longest_sequence():
    axes = draw_cache({"Llama 2 7B": PUBLISHED["Llama 2 7B"]}, "bytes").axes[0]
    assert [" ".join(text.get_text().split()) for text in axes.texts] == ["2 GiB", "Llama 2 7B: 512 KiB per token"]
    assert axes.get_lines()[0].get_xdata()[-1] == pytest.approx(4096)


def test_kernels_are_counted_by_kind():
    def table(*kinds):
        return LayerTable(tuple(Layer(f"{i}", kind, (), (), (), "") for i, kind in enumerate(kinds)))

    axes = draw_kinds({"prefill": table("gemm", "kgen", "kgen"), "decode": table("kgen")}, "kinds").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["prefill: 3", "decode: 1"]
    assert [patch.get_width() for patch in axes.patches] == [1, 0, 2, 1]


def test_a_finished_row_is_gray_until_its_slot_is_free():
    static, continuous = draw_batch_slots(WAYS, "batch slots").axes
    assert sum(patch.get_width() for patch in static.patches[3:]) == 1  # the answer of two tokens waits for that of three
    assert sum(patch.get_width() for patch in continuous.patches[3:]) == 0
    assert static.get_title(loc="left") == "static: the last answer ends at 3.00 s"


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
