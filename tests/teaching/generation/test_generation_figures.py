"""The figures say what the numbers say."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import style
from course_lib.engines import LayerTable
from course_lib.engines.layers import Layer
from course_lib.teaching.generation.arithmetic import PUBLISHED
from course_lib.teaching.generation.figures import (
    draw_batch_slots,
    draw_cache,
    draw_chances,
    draw_intensity,
    draw_kinds,
    draw_loads,
    draw_masks,
)
from course_lib.teaching.generation.serving import serve
from tests.teaching.generation.test_serving import Steps, at_once

WAYS = {name: serve(at_once(3, 2, 2), Steps(), slots=2, continuous=name == "continuous") for name in ("static", "continuous")}


def test_intensity_has_its_ridge():
    drawn = draw_intensity({"decode": {1: 1.0, 8: 4.0}}, 100.0, "memory")
    line, ridge = drawn.axes[0].get_lines()
    assert line.get_ydata().tolist() == [1, 4] and set(ridge.get_ydata()) == {100}
    assert style.alt_text(drawn) == "memory. operations per byte read over new tokens in one call"


def test_each_cache_ends_at_its_longest_sequence():
    axes = draw_cache({"Llama 2 7B": PUBLISHED["Llama 2 7B"]}, "bytes").axes[0]
    assert [text.get_text() for text in axes.texts] == ["2 GiB"]
    assert axes.get_lines()[1].get_xdata() == [pytest.approx(4096)]
    assert axes.get_legend().get_texts()[0].get_text() == "Llama 2 7B: 512 KiB per token"


def test_masks_have_cells_of_one_size():
    panels = draw_masks({"prefill": np.tri(3, dtype=bool), "decode": np.ones((1, 5), bool)}, "masks").axes
    assert [one.get_ylim() for one in panels] == [(2.5, -0.5)] * 2
    assert [one.get_title() for one in panels] == ["prefill", "decode"]


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
    assert static.get_title() == "static: the last answer ends at 3.00 s"


def test_loads_and_chances():
    loads = draw_loads({name: {1.0: one, 2.0: one} for name, one in WAYS.items()}, "loads")
    assert loads.axes[0].get_lines()[0].get_ydata()[0] == WAYS["static"].tokens_per_s
    chances = draw_chances({"temperature 1": np.array([0.75, 0.25])}, ["'a'", "'b'"], "steep")
    assert [patch.get_width() for patch in chances.axes[0].patches] == [0.75, 0.25]
    for drawn in (loads, chances, draw_batch_slots(WAYS, "batch slots")):
        assert style.png(drawn).startswith(b"\x89PNG")
