"""Fake quantization by hand: round in the forward pass, and ignore the rounding in the backward pass.

Rounding is a step function. Its derivative is 0 nearly everywhere, so no gradient would reach a weight. The *straight-through
estimator* uses the derivative of the line through the steps instead. It is 1 where the value was rounded, and 0 where it was
clipped, because a small change of a clipped value has no effect.

Source: Bengio, Léonard and Courville, Estimating or Propagating Gradients Through Stochastic Neurons for Conditional Computation
(2013); Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference (2018).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from course_lib.precision.quantization.qdq import scale_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def straight_through(x: Tensor, amax: ArrayLike, bits: int = 8) -> Tensor:
    """`fake_quantize` for tensors with gradients: the same values, bit for bit, and the straight-through gradient.

    Args:
        x: float32, any shape, on any device.
        amax: largest magnitude, as one number or an array that broadcasts against `x`. It is fixed and gets no gradient.
        bits: bits of the integers, 2 to 16.

    Raises:
        CourseError: as in `scale_of`.
    """
    import torch

    scale = torch.from_numpy(scale_of(amax, bits)).to(x.device)
    return fake_quantize_function().apply(x, scale, 2 ** (bits - 1))


@cache
def fake_quantize_function() -> type[torch.autograd.Function]:
    """The class `FakeQuantize`, created on first use, because its base is torch's and importing this module must not load torch."""
    import torch

    class FakeQuantize(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor, limit: int) -> Tensor:
            steps = torch.round(x / scale)  # half to even, as QuantizeLinear
            ctx.save_for_backward((steps >= -limit) & (steps <= limit - 1))
            return steps.clamp(-limit, limit - 1) * scale

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
            (inside,) = ctx.saved_tensors
            return gradient * inside, None, None

    return FakeQuantize
