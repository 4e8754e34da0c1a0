"""What every process needs that runs a learner's file: limits on its imports, its calls, errors as lines and arrays as JSON values.

It imports numpy and Python's own modules only, because it is also sent as text to sandboxes that do not have the course.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Ask = Callable[[Callable[..., Any], Any], Any]  # calls a learner's function with one question, and returns JSON values


class OnlyPackages:
    """An import hook that says which packages a file may import.

    It does not protect the judge, because the file can remove it. The judge's sandbox does not show the course.
    """

    def __init__(self, *packages: str, file: str = "") -> None:
        """Permit these packages and Python's own modules, in imports by `file`, because a package may import others; "" for all."""
        self.packages, self.file = packages, file

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Reject `name`, or leave it to Python's own finders."""
        if name.partition(".")[0] in (*self.packages, *sys.stdlib_module_names):
            return
        frame = sys._getframe(1)
        while frame.f_back and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if self.file in ("", frame.f_code.co_filename):
            raise ImportError(f"the file may import {', '.join(self.packages)} and Python's own modules, not {name!r}")


def main() -> None:
    """The usual program: call each function with the given arguments, by position, and write its results."""

    def called(function: Callable[..., Any], question: Any) -> Any:
        return plain_values(function(*given_values(question)))

    run(lambda request: answered(request, dict.fromkeys(request["questions"], called)), OnlyPackages("numpy"))


def run(answer: Callable[[dict[str, Any]], Any], hook: OnlyPackages | None = None) -> None:
    """Read one request from standard input and write its answer; output of the learner's code is discarded."""
    reply = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    request = json.load(sys.stdin)
    if hook:
        sys.meta_path.insert(0, hook)
    with os.fdopen(reply, "w") as out:
        json.dump(answer(request), out)


def answered(request: Mapping[str, Any], asks: Mapping[str, Ask]) -> dict[str, Any]:
    """By function, the answer to each question: what `asks` returns, or a `failure`. A function that the file lacks is missing.

    If the file fails as a whole, only its `failure`. A request has ``file``, its text ``source``, and ``questions``, a list by function.
    """
    file, questions = request["file"], request["questions"]
    try:
        defined = vars(loaded(request["source"], file))
    except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
        return failure(error, file)
    return {
        name: [_answer(ask, function, question, file) for question in questions[name]]
        for name, ask in asks.items()
        if name in questions and callable(function := defined.get(name))
    }


def _answer(ask: Ask, function: Callable[..., Any], question: Any, file: str) -> Any:
    try:
        return ask(function, question)
    except BaseException as error:
        return failure(error, file)


def loaded(source: str, file: str) -> types.ModuleType:
    """The learner's file as a module. Whatever its statements raise is raised."""
    name = file.removesuffix(".py")
    module = sys.modules[name] = types.ModuleType(name)  # dataclasses look their module up
    exec(compile(source, file, "exec"), module.__dict__)
    return module


def failure(error: BaseException, file: str) -> dict[str, Any]:
    """The answer in place of a result: ``error``, a line, the class that was ``raised``, and whether the body is still ``empty``."""
    empty = isinstance(error, NotImplementedError)
    return {"error": described(error, file), "empty": empty, "raised": type(error).__name__}


def described(error: BaseException, file: str) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


def plain_values(value: Any) -> Any:
    """A result as JSON values: numbers, texts, lists and dictionaries of them, and arrays as `encoded` writes them."""
    if isinstance(value, Mapping):
        return {str(key): plain_values(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain_values(one) for one in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu().numpy()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
        return encoded(value)
    raise TypeError(f"expected numbers, texts, lists, dictionaries or arrays, found {type(value).__name__}")


def given_values(value: Any) -> Any:
    """The argument that `plain_values` wrote."""
    if isinstance(value, Mapping):
        return decoded(value) if "dtype" in value else {key: given_values(one) for key, one in value.items()}
    return [given_values(one) for one in value] if isinstance(value, list) else value


def encoded(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON values."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def decoded(values: Mapping[str, Any]) -> np.ndarray:
    """The array that `encoded` wrote. Values that it did not write are an error: an answer may be hostile."""
    if min(values["shape"], default=0) < 0 or np.dtype(values["dtype"]).kind not in "iufb":
        raise ValueError("not an array of numbers")
    return np.frombuffer(base64.b64decode(values["data"], validate=True), values["dtype"]).reshape(values["shape"]).copy()
