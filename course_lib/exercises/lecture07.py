"""Exercises of lecture 7: fake quantization, the straight-through gradient, and equalized channels."""

from __future__ import annotations

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, NotYet

_VALUES = np.array([-2.0, -1.2, -0.5, 0.2, 0.9, 5.0])


def _examine_gradient(called: Answer) -> None:
    import torch

    values = [-5.0, -0.9, 0.2, 0.55, 4.0]  # with a scale of 0.25 and codes from -4 to 3: both ends are clipped
    x = torch.tensor(values, requires_grad=True)
    y = called(x, 0.25, -4, 3)
    if not isinstance(y, torch.Tensor) or y.shape != x.shape:
        raise NotYet(f"`straight_through` returned {shown(y)}, expected a tensor of shape (5,). Return the rounded values.")
    forward = [-1.0, -1.0, 0.25, 0.5, 0.75]
    if not same(y, forward):
        hint = (
            "You returned the input. The forward pass has to round and clip." if same(y, values) else _forward_hint(y.tolist())
        )
        raise NotYet(f"forward, `straight_through({values}, 0.25, -4, 3)` returned {shown(y)}, expected {forward}. {hint}")
    if not y.requires_grad:
        raise NotYet(
            "the result has no gradient, because it is detached as a whole. Detach only the difference between rounded and input."
        )
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    (y * weights).sum().backward()
    expected = [0.0, 2.0, 3.0, 4.0, 0.0]
    if x.grad is None or not same(x.grad, expected):
        found = [0.0] * 5 if x.grad is None else x.grad.tolist()
        raise NotYet(
            f"for the incoming gradient [1, 2, 3, 4, 5], found {shown(found)}, expected {expected}. {_gradient_hint(found)}"
        )


def _forward_hint(found: list[float]) -> str:
    if found[-1] > 0.75 or found[0] < -1:
        return "Clip the codes to `low` and `high` in the forward pass."
    if max(map(abs, found)) > 2:
        return "Those are the codes. Multiply them by the scale."
    return "Divide by the scale, round, clip, and multiply by the scale."


def _gradient_hint(found: list[float]) -> str:
    if not any(found):
        return "Rounding has the derivative 0. Let the backward pass see the input instead, with `.detach()` around the rounding error."
    if found[0] and found[-1]:
        return "The two clipped values get a gradient. Clipping is flat there: let the gradient pass through `clamp`."
    if same(found, [0.0, 8.0, 12.0, 16.0, 0.0]) or same(found, [0.0, 0.5, 0.75, 1.0, 0.0]):
        return "The scale is left in the gradient. Divide by it and multiply by it in the same expression."
    return "The gradient is 1 where a value is rounded, and 0 where it is clipped."


# Two channels between the layers; the first is large.
_FIRST, _BIAS = np.array([[8.0, -4.0, 2.0], [0.5, 0.25, -0.125]]), np.array([4.0, 0.25])
_SECOND = np.array([[0.5, 8.0], [-0.25, 4.0]])


def _examine_equalize(called: Answer) -> None:
    given = tuple(array.copy() for array in (_FIRST, _BIAS, _SECOND))
    for array in given:
        array.flags.writeable = False
    found = called(*given)
    shapes = [array.shape for array in given]
    if not isinstance(found, tuple) or [np.shape(part) for part in found] != shapes:
        raise NotYet(
            f"`equalize` returned {shown(found)}, expected arrays of the shapes {shapes}. End with `return first, bias, second`."
        )
    first, bias, second = (np.asarray(part) for part in found)
    written, read = np.abs(first).max(1), np.abs(second).max(0)
    x = np.array([[1.0, 2.0, -1.0], [-1.0, 0.5, 2.0], [0.1, 3.0, 1.0]]).T
    changed = not same(_two_layers(first, bias, second, x), _two_layers(_FIRST, _BIAS, _SECOND, x), tolerance=1e-6)
    ratios = f"found {shown(written)} for the weights that write a channel and {shown(read)} for those that read it"
    if changed:
        unbiased = same(
            _two_layers(first, bias * (written / np.abs(_FIRST).max(1)), second, x), _two_layers(_FIRST, _BIAS, _SECOND, x)
        )
        hint = (
            "The bias belongs to the channel too: divide it by the same factor."
            if unbiased
            else "What divides row k of the first weight multiplies column k of the second."
        )
        raise NotYet(f"the two layers no longer compute the same function. {hint}")
    if same(written, np.abs(_FIRST).max(1)):
        raise NotYet(f"{ratios}, as before. Compute a factor for each channel from both maxima.")
    if not same(written, read, tolerance=1e-4):
        raise NotYet(f"the function is the same, but {ratios}, expected equal pairs. {_factor_hint(written, read)}")


def _two_layers(first: np.ndarray, bias: np.ndarray, second: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.asarray(second @ np.maximum(first @ x + bias[:, None], 0))


def _factor_hint(written: np.ndarray, read: np.ndarray) -> str:
    before = np.abs(_FIRST).max(1) / np.abs(_SECOND).max(0)
    after = written / read
    if same(after, 1 / before, tolerance=1e-4):
        return "The maxima of the two layers are exchanged: dividing by a / b moves too much. Take the square root of a / b."
    if same(written, np.ones(2)):
        return "You made every maximum of the first weight 1, which moves the problem into the second."
    if (np.abs(np.log(after)) > np.abs(np.log(before)) * 1.01).all():
        return "The spread has grown: you used the inverse of the factor."
    return "The factor is the square root of the written maximum divided by the read maximum."


EXAMINATIONS = {"7.2": _examine_gradient, "7.3": _examine_equalize}
ARGUMENTS = {
    "7.1": (
        (_VALUES, 1.0, 3),
        (np.array([0.5, 1.9, -3.0]), 2.0),
    )
}
