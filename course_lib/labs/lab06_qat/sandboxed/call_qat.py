"""The process that calls a learner's ``fake_quantize``. It is sent as text to a sandbox that has torch and numpy, and not the course."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.labs.framework.learner_code import OnlyPackages, answered, given_values, plain_values, run

FILE = "qat.py"


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """See `learner_code.answered`. A question has `x`, the scale, the axis and the gradient that arrives from behind."""
    import torch

    torch.set_num_threads(1)
    return answered(request, {"fake_quantize": _rounded})


def _rounded(function: Callable[..., Any], question: Any) -> Any:
    """The values, and the gradients of `x` and of the scale; None for a gradient that does not exist."""
    import torch

    x, scale, axis, upstream = given_values(question)
    x, scale = (torch.from_numpy(array).requires_grad_() for array in (x, scale))
    result = function(x, scale) if axis is None else function(x, scale, axis)
    if result.requires_grad:
        result.backward(torch.from_numpy(upstream))
    return plain_values({"values": result, "to_x": x.grad, "to_scale": scale.grad})


def main() -> None:
    """Answer one request."""
    run(answers, OnlyPackages("torch", "numpy", file=FILE))
