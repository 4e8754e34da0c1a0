"""Fake quantization for training: numpy's values, PyTorch's own gradient, and weights that learn through it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from course_lib.errors import CourseError
from course_lib.precision.quantization.fake_quant import straight_through
from course_lib.precision.quantization.qdq import fake_quantize, scale_of

tensors = arrays(np.float32, st.integers(1, 40), elements=st.floats(-(2.0**20), 2.0**20, width=32))


@given(tensors, st.floats(0.125, 2.0**20, width=32), st.integers(2, 16))
def test_values_are_those_of_fake_quantize(x: np.ndarray, amax: float, bits: int) -> None:
    for ranges in (amax, np.abs(x) + np.float32(amax)):  # one, or one for each channel
        np.testing.assert_array_equal(straight_through(torch.tensor(x), ranges, bits).numpy(), fake_quantize(x, ranges, bits))


def test_the_gradient_is_1_inside_the_range_and_0_outside() -> None:
    x = torch.tensor([-9.0, -1.01, -1.0, -0.3, 0.0, 0.004, 0.99, 1.0, 1.01, 9.0], requires_grad=True)
    straight_through(x, 1.0).backward(torch.arange(1.0, 11.0))
    # -128 steps exist and +128 do not: -1.01 is -128.27 steps, which is rounded and not clipped; 1.01 is
    assert x.grad is not None and x.grad.tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 0, 0]


@given(tensors, st.sampled_from([0.25, 1.0, 3.0, 100.0]))
def test_the_gradient_is_pytorchs_own(values: np.ndarray, amax: float) -> None:
    ours, theirs = (torch.tensor(values, requires_grad=True) for _ in range(2))
    straight_through(ours, amax).sum().backward()
    torch.fake_quantize_per_tensor_affine(theirs, float(scale_of(amax)), 0, -128, 127).sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    border = np.abs(np.abs(values / scale_of(amax)) - 127.5) < 0.6  # they multiply by 1 / scale: the last bit may differ
    np.testing.assert_array_equal(ours.grad[~border], theirs.grad[~border])


def test_a_range_that_cannot_be_is_rejected() -> None:
    with pytest.raises(CourseError, match="the range -1 cannot be quantized"):
        straight_through(torch.ones(3), -1.0)
    with pytest.raises(CourseError, match="bits must be from 2 to 16, got 1"):
        straight_through(torch.ones(3), 1.0, 1)
