"""The width of the memory accesses in the PTX that nvcc made from a kernel."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from course_lib.plugins.compilers import SOURCE, compile_to_ptx

_ENTRY = re.compile(r"\.entry\s+(\w+)")
_LOCAL = re.compile(r"\b(ld|st)\.local\b")  # an array that did not fit into registers
_ACCESS = re.compile(r"\b(ld|st)\.global(?:\.\w+)*?(?:\.v(\d))?\.[bsuf](8|16|32|64)\b")


def count_accesses(ptx: str) -> dict[str, Counter[str]]:
    """For each kernel, the number of load and store instructions by their width in bytes of global memory.

    Returns:
        by kernel, counts by ``"ld 16"``, ``"st 2"``, ..., and ``"local"`` for loads and stores of arrays that are not in
        registers; a text without kernels gives an empty dict.
    """
    found: dict[str, Counter[str]] = {}
    kernel = None
    for line in ptx.splitlines():
        if entry := _ENTRY.search(line):
            kernel = found.setdefault(entry[1], Counter())
        elif kernel is not None and (access := _ACCESS.search(line)):
            kernel[f"{access[1]} {int(access[2] or 1) * int(access[3]) // 8}"] += 1
        elif kernel is not None and _LOCAL.search(line):
            kernel["local"] += 1
    return found


def global_accesses(source: Path = SOURCE, *, architecture: str = "sm_90") -> dict[str, Counter[str]]:
    """Compile a source to PTX and count, as `count_accesses` does. No GPU is needed.

    Raises:
        BackendUnavailable: no nvcc.
        BuildError: nvcc rejected the source.
    """
    return count_accesses(compile_to_ptx(source, architecture=architecture))
