"""Changed copies of the decoder change what they say, and the loss is that of the course's measure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from course_lib.models import course_text, decoder
from course_lib.teaching.low_bits.figures import draw_grids
from course_lib.teaching.low_bits.loss import Cost, cost, window_bits
from course_lib.teaching.low_bits.rounding import (
    planted,
    product_inputs,
    products,
    with_cache,
    with_factors,
    with_inputs,
    with_weights,
)

TEXT = course_text("test")[:600]
TOKENS = torch.from_numpy(np.frombuffer(TEXT[:64], np.uint8)[None].astype(np.int64))


@pytest.fixture(scope="module")
def model():
    return decoder()


def logits(model):
    with torch.inference_mode():
        return model(TOKENS).numpy()


def test_window_bits_are_bits_per_byte():
    def sure(tokens):
        return 100.0 * torch.eye(256)[(tokens + 1) % 256]

    text = bytes(range(256)) * 3
    equal = window_bits(lambda tokens: torch.zeros(*tokens.shape, 256), text, window=100)
    assert equal == pytest.approx([8.0] * 7), "the rest of the text, which fills no window, does not count"
    assert window_bits(sure, text, window=64, batch=5) == pytest.approx([0.0] * 12, abs=1e-9)
    with pytest.raises(ValueError, match="at least two windows of 256 bytes, got 300"):
        window_bits(sure, text[:300])


def test_cost_is_paired():
    assert cost([2.0, 4.0], [1.0, 3.0]) == Cost(1.0, 0.0)
    wide = cost([2.0, 3.0], [1.0, 4.0])
    assert wide.mean == 0 and wide.half_width == pytest.approx(1.96)
    assert str(wide) == "+0.0000 ± 1.9600"
    with pytest.raises(ValueError, match="same two or more windows, got 1 and 2"):
        cost([1.0], [1.0, 2.0])


def test_what_changes_nothing_computes_the_same(model):
    want = logits(model)
    for same in (
        with_weights(model, lambda w: w),
        with_inputs(model, lambda x: x),
        with_cache(model, keys=lambda k: k, values=lambda v: v),
        with_factors(model, {(0, "up"): np.linspace(0.5, 2, 192)}),
        planted(model, 17, 60),
    ):
        assert np.allclose(logits(same), want, atol=2e-4)


def test_each_place_is_changed(model):
    want = logits(model)
    for changed in (
        with_weights(model, np.zeros_like),
        with_inputs(model, np.zeros_like),
        with_cache(model, keys=np.zeros_like),
        with_cache(model, values=np.zeros_like),
    ):
        assert not np.allclose(logits(changed), want, atol=0.1)
    assert np.array_equal(logits(model), want)


def test_the_planted_channel_is_large(model):
    read = product_inputs(planted(model, 17, 60), TEXT)
    plain = product_inputs(model, TEXT)
    assert len(read) == len(list(products(model))) == 16
    assert np.allclose(read[1, "up"][:, 17], 60 * plain[1, "up"][:, 17], rtol=1e-3, atol=1e-3)
    assert np.allclose(read[1, "up"][:, :17], plain[1, "up"][:, :17], atol=1e-3)


def test_grids_are_divided_by_their_largest_number():
    axes = draw_grids({"E2M1": np.array([-6.0, 0, 0.5, 6])}, "codes").axes[0]
    drawn = [segment[0][0] for segment in axes.collections[0].get_segments()]
    assert drawn == pytest.approx([0, 0.5 / 6, 1]) and axes.texts[0].get_text() == "3"
