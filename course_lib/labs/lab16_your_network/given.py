"""What lab 16 gives: names of files, inputs that both sides draw, and the numbers of an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from course_lib.errors import EngineError

NETWORK, RECIPE, FINDINGS = "network.py", "recipe.toml", "findings.json"
PRECISIONS = ("fp32", "fp16", "int8")


def draw(
    inputs: Mapping[str, Sequence[int | str]], integers: Mapping[str, int], shapes: Mapping[str, Sequence[int]], seed: int
) -> dict[str, np.ndarray]:
    """Inputs of a network: floats are normally distributed, integers uniformly.

    Args:
        inputs: shape by name, as in a `Signature`; a dynamic dimension is a string, its name.
        integers: number of values of each integer input.
        shapes: of the inputs that a profile has.

    Raises:
        EngineError: a shape does not fit the signature.
    """
    rng = np.random.default_rng(seed)
    drawn = {}
    for name, declared in inputs.items():
        shape = [size for size in shapes.get(name, declared) if isinstance(size, int)]
        fits = len(shape) == len(declared) and all(
            size == one or isinstance(one, str) for size, one in zip(shape, declared, strict=True)
        )
        if not fits:
            found = tuple(shapes[name]) if name in shapes else "no shape"
            raise EngineError(f"the signature's {name!r} is {tuple(declared)}, and the recipe's profile has {found}")
        if name in integers:
            drawn[name] = rng.integers(integers[name], size=shape, dtype=np.int64)
        else:
            drawn[name] = rng.standard_normal(shape).astype(np.float32)
    return drawn
