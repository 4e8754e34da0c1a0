"""What a file or a training leaves of a layer, and whether it is a layer of this network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.errors import CourseError
from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS


@dataclass(frozen=True)
class Stored:
    """A layer, quantized or not.

    Attributes:
        weight: int8 codes or the float32 weight, of the shape that `LAYERS` has.
        scale: float32 ``(out,)``, the step of each output channel; None if the weight is float.
        bias: float32 ``(out,)``.
        input_scale: the step of what the layer reads; None if it reads float.
    """

    weight: np.ndarray
    scale: np.ndarray | None
    bias: np.ndarray
    input_scale: float | None

    @property
    def quantized(self) -> bool:
        """Whether both factors of its products are INT8."""
        return self.scale is not None and self.input_scale is not None

    def values(self) -> np.ndarray:
        """The weight that the layer multiplies with, float32."""
        if self.scale is None:
            return self.weight
        return self.weight * self.scale.reshape(along_outputs(self.weight))


def along_outputs(weight: Any) -> tuple[int, ...]:
    """The shape in which one number for each output channel multiplies a weight."""
    return (-1, *[1] * (weight.ndim - 1))


def check(layers: Mapping[str, Stored]) -> None:
    """Whether these are the layers of the network, with numbers that can be stored and multiplied.

    Raises:
        CourseError: one is not; the message names it.
    """
    if missing := [name for name in LAYERS if name not in layers]:
        raise CourseError(f"the layer {missing[0]!r} is missing: expected {', '.join(LAYERS)}")
    for name, shape in LAYERS.items():
        one = layers[name]
        for what, found, expected in (
            ("weight", one.weight, shape.weight),
            ("bias", one.bias, (shape.outputs,)),
            *([("scale of the weight", one.scale, (shape.outputs,))] if one.scale is not None else []),
        ):
            if found.shape != expected:
                raise CourseError(f"the {what} of {name} has the shape {found.shape}, expected {expected}")
            if not np.isfinite(found).all():
                raise CourseError(f"the {what} of {name} is NaN or infinite")
        scales = [one.scale] if one.scale is not None else []
        scales += [np.array([one.input_scale])] if one.input_scale is not None else []
        if not all(np.isfinite(scale).all() and (scale > 0).all() for scale in scales):
            raise CourseError(f"a scale of {name} is zero, negative or not finite: expected a positive step, amax / 127")
