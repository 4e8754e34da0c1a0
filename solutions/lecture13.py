"""Solutions of the exercises in lecture 13."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

import numpy as np


def blocks(supported: list[bool], min_block_size: int) -> list[tuple[str, int]]:
    """13.1: runs of supported operators, without the short ones."""
    in_tensorrt: list[bool] = []
    for flag, run in groupby(supported):
        size = len(list(run))
        in_tensorrt += [flag and size >= min_block_size] * size
    return [("TensorRT" if flag else "PyTorch", len(list(run))) for flag, run in groupby(in_tensorrt)]


def compile_whole(torch_tensorrt: Any, module: Any, smallest: Any, best: Any, largest: Any) -> Any:
    """13.2: a range for the input, the entry point for deployment, and an error instead of a graph break."""
    image = torch_tensorrt.Input(min_shape=smallest, opt_shape=best, max_shape=largest)
    return torch_tensorrt.compile(module, ir="dynamo", arg_inputs=[image], require_full_compilation=True)


def wrong_outputs(
    exact: dict[str, np.ndarray], eager: dict[str, np.ndarray], engine: dict[str, np.ndarray], factor: float
) -> list[str]:
    """13.3: PyTorch in the same type shows which error is usual."""
    found = []
    for name, right in exact.items():
        usual = np.abs(eager[name] - right).max()
        if not np.abs(engine[name] - right).max() <= factor * usual:
            found.append(name)
    return found


def unread_keywords(function: Callable[..., Any], keywords: Iterable[str]) -> dict[str, str]:
    """13.4: what only `**kwargs` accepts, with the nearest name that is read."""
    read = [
        name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind != parameter.VAR_KEYWORD
    ]
    nearest = {name: difflib.get_close_matches(name, read, 1) for name in keywords if name not in read}
    return {name: matches[0] if matches else "" for name, matches in nearest.items()}
