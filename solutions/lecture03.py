"""Solutions of the exercises in lecture 3."""

from __future__ import annotations

import numpy as np

Node = tuple[tuple[str, ...], str]
Graph = dict[str, tuple[str, tuple[str, ...], str]]


def traffic(kernels: list[list[Node]], bytes_of: dict[str, int], outputs: set[str]) -> int:
    """3.1: a tensor is in memory if another kernel, or the caller, needs it."""
    read = []
    for kernel in kernels:
        inside = {output for _, output in kernel}
        read.append({name for inputs, _ in kernel for name in inputs} - inside)
    needed = outputs.union(*read)
    total = 0
    for kernel, names in zip(kernels, read, strict=True):
        written = {output for _, output in kernel} & needed
        total += sum(bytes_of[name] for name in names) + sum(bytes_of[name] for name in written)
    return total


def fold_before(weight: np.ndarray, bias: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """3.2: W (s x + t) + b = (W s) x + (W t + b)."""
    return weight * scale, bias + weight @ shift


def epilogue(graph: Graph, start: str, outputs: set[str], pointwise: set[str]) -> list[str]:
    """3.3: one reader, not an output, and an operator that works on single numbers."""
    found: list[str] = []
    tensor = graph[start][2]
    while tensor not in outputs:
        readers = [name for name, (_, inputs, _) in graph.items() if tensor in inputs]
        if len(readers) != 1 or graph[readers[0]][0] not in pointwise:
            break
        found.append(readers[0])
        tensor = graph[readers[0]][2]
    return found
