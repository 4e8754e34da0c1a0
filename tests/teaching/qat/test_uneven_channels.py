"""Channels made louder and quieter: the function stays, the ranges do not, and the cure brings them back."""

import pytest
import torch
from torch import nn

from course_lib.teaching.qat.figures import equalized, uneven

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
