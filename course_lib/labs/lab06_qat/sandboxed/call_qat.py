"""The process that calls a learner's functions of ``qat.py``: source text and arrays in, arrays out.

It is started as text, by `isolation.text_command`, in a sandbox without the course. It has only torch, numpy and Python's own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, answered, decoded, encoded, failure, numbers, run

FILE = "qat.py"


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """See `learner_code.answered`.

    Args:
        request: for a question to ``fake_quantize``, which has two answers, see `_both_rounded`; to ``fold`` it is a layer; for
            ``train``, see `_trained`. Arrays are as `encoded`.
    """
    import torch

    torch.set_num_threads(1)
    found = answered(request, {"fake_quantize": _both_rounded, "fold": _folded, "train": _trained})
    if "fake_quantize" in found:
        found["fake_quantize"] = [one for pair in found["fake_quantize"] for one in pair]
    return found


def _both_rounded(function: Callable[..., Any], asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The answers to two questions. Both forward passes come before both backward passes, as in a network.

    Args:
        asked: ``both`` questions, each with ``x``, ``scale``, ``axis`` and the gradient ``upstream``, and the orders of the passes,
            ``forward`` and ``backward``.
    """
    each = [_Rounded(function, one) for one in asked["both"]]
    for place in asked["forward"]:
        each[place].take(each[place].forward)
    for place in asked["backward"]:
        each[place].take(each[place].backward)
    return [one.found for one in each]


class _Rounded:
    """One question to ``fake_quantize``.

    Attributes:
        found: the answer: the values, and the gradients that reach `x` and the scale, without those that do not exist; or a `failure`.
    """

    def __init__(self, function: Callable[..., Any], asked: Mapping[str, Any]) -> None:
        self.function, self.axis, self.upstream = function, asked["axis"], _tensor(asked["upstream"])
        self.x, self.scale = (_tensor(asked[name]).requires_grad_() for name in ("x", "scale"))
        self.result: Any = None
        self.found: dict[str, Any] = {}

    def take(self, step: Callable[[], None]) -> None:
        """Take a step, unless one has failed."""
        try:
            if not self.found:
                step()
        except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
            self.found = failure(error, FILE)

    def forward(self) -> None:
        """Call the function."""
        arguments = (self.x, self.scale) if self.axis is None else (self.x, self.scale, self.axis)
        self.result = self.function(*arguments)

    def backward(self) -> None:
        """Send the gradient back."""
        if self.result.requires_grad:
            self.result.backward(self.upstream)
        found = {"values": self.result, "to_x": self.x.grad, "to_scale": self.scale.grad}
        self.found = {name: _result(value) for name, value in found.items() if value is not None}


def _folded(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    weight, bias = function({name: _tensor(array) for name, array in asked.items()})
    return {"weight": _result(weight), "bias": _result(bias)}


def _trained(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The trained layers, and how many images have passed through the forward pass.

    Args:
        asked: ``layers``, ``images`` and ``labels``, the text of the forward pass, and ``budget``, the most images that may pass it.
    """
    import torch

    module: dict[str, Any] = {"__name__": "forward"}
    exec(compile(asked["forward"], "forward.py", "exec"), module)
    seen = 0

    def forward(layers: Any, images: Any, read: Any = None, weigh: Any = None) -> Any:
        nonlocal seen
        seen += len(images)
        if seen > asked["budget"]:
            raise RuntimeError(f"the budget is {asked['budget']:,} images through forward, calibration included")
        return module["forward"](layers, images, read and _keeps_shape(read), weigh and _keeps_shape(weigh))

    torch.manual_seed(0)
    layers = {name: {part: _tensor(array) for part, array in one.items()} for name, one in asked["layers"].items()}
    found = function(layers, _tensor(asked["images"]), _tensor(asked["labels"]), forward)
    parts = ("codes", "scale", "bias", "input_scale")
    return {"layers": {name: {part: _result(found[name][part]) for part in parts} for name in layers}, "seen": seen}


def _keeps_shape(hook: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """A hook that replaces values, but brings no other images, which would not be counted."""

    def hooked(name: str, value: Any) -> Any:
        found = hook(name, value)
        if found.shape != value.shape:
            raise RuntimeError(
                f"what a hook returns for {name} has the shape {tuple(found.shape)}, expected {tuple(value.shape)}"
            )
        return found

    return hooked


def _tensor(array: Mapping[str, Any]) -> Any:
    import torch

    return torch.from_numpy(decoded(array))


def _result(array: Any) -> dict[str, Any]:
    return encoded(numbers(array.detach().cpu() if hasattr(array, "detach") else array))


def main() -> None:
    """Answer one request."""
    run(answers, OnlyPackages("torch", "numpy", file=FILE))
