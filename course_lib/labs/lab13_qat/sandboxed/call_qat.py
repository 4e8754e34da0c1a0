"""The process that calls a learner's functions of ``qat.py``: source text and arrays in, arrays out.

It is started as text, with ``python -I -c``, in a sandbox without the course. It has only torch, numpy and Python's own modules.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

FILE = "qat.py"
FUNCTIONS = ("fake_quantize", "fold", "train")  # that the grader calls
MOST_BYTES = 1 << 20  # of one answer
_PERMITTED = {*sys.stdlib_module_names, "numpy", "torch"}


class TorchOnly:
    """An import hook that rejects other packages in the learner's file, so that the functions are the learner's own work."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Reject `name` if the file imports it; torch and numpy may import what they need."""
        frame = sys._getframe(1)
        while frame.f_back and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame.f_code.co_filename == FILE and name.partition(".")[0] not in _PERMITTED:
            raise ImportError(f"the file may import torch, numpy and Python's own modules, not {name!r}")


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """By function, what each call returned, or ``{"error": line, "empty": bool}``. A function that the file lacks is missing.

    Args:
        request: ``source``, the text of the file, and any of ``fake_quantize`` (a list of calls with ``x``, ``scale``, ``axis`` and
            the gradient ``upstream``), ``fold`` (a list of layers) and ``train`` (see `_trained`). Arrays are as `encoded`.
    """
    import torch

    torch.set_num_threads(1)
    names: dict[str, Any] = {"__name__": FILE.removesuffix(".py")}
    try:
        exec(compile(request["source"], FILE, "exec"), names)
    except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
        return {"error": said(error)}
    calls = {"fake_quantize": _rounded, "fold": _folded, "train": _trained}
    return {
        function: [_attempt(call, names[function], asked) for asked in request[function]]
        for function, call in calls.items()
        if function in request and callable(names.get(function))
    }


def _attempt(call: Callable[..., Any], function: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
    try:
        return call(function, asked)
    except BaseException as error:
        return {"error": said(error), "empty": isinstance(error, NotImplementedError)}


def _rounded(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The values, and the gradients that reach `x` and the scale; a gradient that does not exist is missing."""
    x, scale = (_tensor(asked[name]).requires_grad_() for name in ("x", "scale"))
    result = function(x, scale, asked["axis"]) if asked["axis"] is not None else function(x, scale)
    if result.requires_grad:
        result.backward(_tensor(asked["upstream"]))
    found = {"values": result, "to_x": x.grad, "to_scale": scale.grad}
    return {name: encoded(value) for name, value in found.items() if value is not None}


def _folded(function: Callable[..., Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    weight, bias = function({name: _tensor(array) for name, array in asked.items()})
    return {"weight": encoded(weight), "bias": encoded(bias)}


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
        return module["forward"](layers, images, read, weigh)

    torch.manual_seed(0)
    layers = {name: {part: _tensor(array) for part, array in one.items()} for name, one in asked["layers"].items()}
    found = function(layers, _tensor(asked["images"]), _tensor(asked["labels"]), forward)
    parts = ("codes", "scale", "bias", "input_scale")
    return {"layers": {name: {part: encoded(found[name][part]) for part in parts} for name in layers}, "seen": seen}


def encoded(array: Any) -> dict[str, Any]:
    """An array or tensor as plain JSON values."""
    array = np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
    if array.dtype.kind not in "iuf" or array.nbytes > MOST_BYTES:
        raise TypeError(f"a result is not an array of numbers, or it is too large: found {array.dtype} of shape {array.shape}")
    return sent(array)


def sent(array: np.ndarray) -> dict[str, Any]:
    """The same for the grader's own arrays, of any size."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def _tensor(array: Mapping[str, Any]) -> Any:
    import torch

    data = bytearray(base64.b64decode(array["data"]))
    return torch.from_numpy(np.frombuffer(data, array["dtype"]).reshape(array["shape"]))


def said(error: BaseException) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    where = f"line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


def main() -> None:
    """Read one request from standard input and write its answer; output of the learner's code is discarded."""
    reply = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    request = json.load(sys.stdin)
    import torch  # noqa: F401  # before the hook, and before the learner's file

    sys.meta_path.insert(0, TorchOnly())
    with os.fdopen(reply, "w") as out:
        json.dump(answers(request), out)


if __name__ == "__main__":
    main()
