"""Names for stretches of a program, so that a profiler shows "preprocess" and not just what it called."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Push = Callable[[str], object]
_Pop = Callable[[], object]


class nvtx_range:
    """An NVTX range around a block or a function: ``with nvtx_range("infer"):`` or ``@nvtx_range("infer")``.

    Nsight Systems draws it, and ``ncu_profile(within="infer")`` selects by it. It uses the ``nvtx`` package, or else PyTorch if the
    program has imported it and has CUDA. Without either it does nothing, in less than a microsecond, so it can stay in the code.

    Args:
        name: name in the profiler, without ``@ , [ ] / * + \\ "``, which nsys and ncu read as syntax.
    """

    __slots__ = ("_pop", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._pop: _Pop | None = None  # what ends the range that was begun: torch may be imported in between

    def __enter__(self) -> nvtx_range:
        marker = _marker("torch" in sys.modules)
        if marker:
            push, self._pop = marker
            push(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pop:
            self._pop()

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Wrap a function so that each of its calls is a range."""

        @wraps(function)
        def ranged(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with nvtx_range(self.name):
                return function(*args, **kwargs)

        return ranged


@cache
def _marker(torch_is_imported: bool) -> tuple[_Push, _Pop] | None:
    """The functions that begin and end a range here, determined once."""
    try:
        nvtx = import_module("nvtx")
        return nvtx.push_range, nvtx.pop_range
    except ImportError:
        pass
    if not torch_is_imported:
        return None
    cuda = import_module("torch").cuda
    return (cuda.nvtx.range_push, cuda.nvtx.range_pop) if cuda.is_available() else None
