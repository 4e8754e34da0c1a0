"""The figures of lecture 7, and channels made louder and quieter: the function stays, and the cure brings the ranges back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from course_lib.precision import fake_quantize
from course_lib.teaching.qat.figures import descent_figure, equalized, gradient_figure, uneven


def test_the_gradient_is_cut_half_a_step_beyond_the_last_level():
    left, right = gradient_figure(amax=1.0, bits=3).axes
    values, rounded = left.lines[1].get_data()
    np.testing.assert_array_equal(rounded, fake_quantize(values, 1.0, 3))
    x, gradient = right.lines[1].get_data()
    inside = (x > -4.5 / 3 + 1e-6) & (x < 3.5 / 3 - 1e-6)
    np.testing.assert_array_equal(gradient[np.abs(x - 3.5 / 3) > 1e-3], inside[np.abs(x - 3.5 / 3) > 1e-3].astype(float))
    assert right.get_title(loc="left") == "Backward: cut below -1.50 and above 1.17"


def test_a_target_on_a_level_is_reached_and_kept():
    assert descent_figure(target=1 / 3, start=0.0, steps=60).axes[0].get_title(loc="left").endswith("ends at 0.333")


PAIRS = {"0": "2"}


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, bias=False)).eval()


def loudness(network):
    return network[0].weight.detach().abs().flatten(1).amax(1)


def test_the_function_stays_and_the_channels_differ(network):
    images = torch.randn(4, 2, 8, 8)
    changed = uneven(network, PAIRS, 16)
    with torch.no_grad():
        torch.testing.assert_close(changed(images), network(images), atol=1e-5, rtol=1e-4)
    factors = loudness(changed) / loudness(network)
    assert 1 / 16 <= factors.min() < 0.5 and 2 < factors.max() <= 16


def test_the_cure_makes_both_sides_of_a_channel_equally_large(network):
    images = torch.randn(4, 2, 8, 8)
    cured = equalized(uneven(network, PAIRS, 64), PAIRS)
    with torch.no_grad():
        torch.testing.assert_close(cured(images), network(images), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(loudness(cured), cured[2].weight.detach().abs().amax((0, 2, 3)))
