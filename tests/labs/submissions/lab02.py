"""Submissions for lab 02's task 4 that name suspects without measuring them."""

from __future__ import annotations

from collections.abc import Sequence

# For each suspect, a node of its part that is in a kernel of the given network, or that the compiler removed.
NODES = {
    "activation": "/act/Where",
    "branches": "/block2/conv1/first/Conv",
    "casts": "/standardize/Cast",
    "concat": "/block3/conv1/right/Conv",
    "head": "/head/head.0/Gemm",
    "layout": "/block1/norm1/Transpose",
    "primitives": "/norm/Sub",
    "reshape": "/pool/Reshape",
    "residual": "/block1/join/Concat",
}
# Each leaves out so few suspects that most of those that cost kernels are named. A guess of this kind earned half of the points.
BLANKETS: Sequence[tuple[str, ...]] = (
    ("casts",),
    ("primitives",),
    ("reshape",),
    ("casts", "layout"),  # an innocent and a guilty one
    ("branches",),
)


def blanket(without: Sequence[str]) -> dict[str, list[str]]:
    """A `causes.json` that names all suspects but these."""
    return {suspect: [node] for suspect, node in NODES.items() if suspect not in without}
