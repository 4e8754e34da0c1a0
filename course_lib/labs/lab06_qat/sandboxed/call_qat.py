"""The process that calls a learner's functions of ``qat.py``: source text and arrays in, arrays out.

It is started as text, by `isolation.text_command`, in a sandbox without the course. It has only torch, numpy and Python's own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, answered, decoded, encoded, numbers, run

FILE = "qat.py"


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """See `learner_code.answered`.

    Args:
        request: a question to ``fake_quantize`` has ``x``, ``scale``, ``axis`` and the gradient ``upstream``; to ``fold`` it is a layer;
            for ``train``, see `_trained`. Arrays are as `encoded`.
    """
    import torch

    torch.set_num_threads(1)
    return answered(request, {"fake_quantize": _rounded, "fold": _folded, "train": _trained})


def _rounded(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and the gradients that reach `x` and the scale; a gradient that does not exist is missing."""
    x, scale = (_tensor(asked[name]).requires_grad_() for name in ("x", "scale"))
    result = function(x, scale, asked["axis"]) if asked["axis"] is not None else function(x, scale)
    if result.requires_grad:
        result.backward(_tensor(asked["upstream"]))
    found = {"values": result, "to_x": x.grad, "to_scale": scale.grad}
    return {name: _result(value) for name, value in found.items() if value is not None}


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
