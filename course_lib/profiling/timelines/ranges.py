"""Names for stretches of a program, so that a profiler shows "preprocess" and not just what it called."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module

_Push = Callable[[str], object]
_Pop = Callable[[], object]


@contextmanager
def nvtx_range(name: str) -> Iterator[None]:
    """An NVTX range around a block or a function: ``with nvtx_range("infer"):`` or ``@nvtx_range("infer")``.

    Nsight Systems draws it, and ``ncu_profile(within="infer")`` selects by it. It uses the ``nvtx`` package, or else PyTorch if the
    program has imported it and has CUDA. Without either it does nothing, in about a microsecond, so it can stay in the code.

    Args:
        name: name in the profiler, without ``@ , [ ] / * + \\ "``, which nsys and ncu read as syntax.
    """
    push, pop = _marker("torch" in sys.modules)
    push(name)
    try:
        yield
    finally:
        pop()


@cache
def _marker(torch_is_imported: bool) -> tuple[_Push, _Pop]:
    """The functions that begin and end a range here, determined once. Without a library they do nothing."""
    try:
        nvtx = import_module("nvtx")
        return nvtx.push_range, nvtx.pop_range
    except ImportError:
        pass
    if torch_is_imported and (cuda := import_module("torch").cuda).is_available():
        return cuda.nvtx.range_push, cuda.nvtx.range_pop
    return (lambda name: None), (lambda: None)
