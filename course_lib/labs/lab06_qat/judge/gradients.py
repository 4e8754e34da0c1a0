"""Secret tensors for `fake_quantize`, an oracle in numpy, and the mistakes that give what a learner's function returned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.learner_answers import Unwritten, in_any_order
from course_lib.labs.framework.sandboxed.learner_code import encoded_with_strides
from course_lib.labs.lab06_qat.judge.functions import Arrays

LOW, HIGH = -128, 127
_SMALLEST, _LARGEST = -20, 10  # exponents of scales and of upstream gradients
_OFF = 1e-5  # of the largest expected number, and of what is added up for a scale: float32 sums in any order
_ORDERS = ([0, 1], [1, 0])  # of the two questions of a pair
_PARTS = ("values", "to_x", "to_scale")
_NAMES = {"values": "values", "to_x": "gradients of x", "to_scale": "gradients of the scale"}


@dataclass(frozen=True)
class Question:
    """A call of `fake_quantize` and the gradient that arrives from behind.

    Attributes:
        x, upstream: float32 of the same shape, each in its own order in memory.
        scale: float32, one number, or one for each index along `axis`.
    """

    name: str
    x: np.ndarray
    scale: np.ndarray
    axis: int | None
    upstream: np.ndarray

    @property
    def wire(self) -> dict[str, Any]:
        """What the process gets."""
        tensors = {"x": self.x, "scale": self.scale, "upstream": self.upstream}
        return {name: encoded_with_strides(tensor) for name, tensor in tensors.items()} | {"axis": self.axis}

    @cached_property
    def step(self) -> np.ndarray:
        """The scale in a shape that broadcasts against `x`, float64."""
        return _along(self.scale, self.x, self.axis)

    @cached_property
    def ratio(self) -> np.ndarray:
        """`x` in steps, float64."""
        return np.asarray(self.x / self.step)

    @cached_property
    def codes(self) -> np.ndarray:
        """The codes, half to even."""
        return np.clip(np.rint(self.ratio), LOW, HIGH)

    @cached_property
    def inside(self) -> np.ndarray:
        """Where a value was rounded, and not clipped. No value lies within half a step of the border."""
        return np.asarray((self.ratio >= LOW) & (self.ratio <= HIGH))

    def summed(self, elements: np.ndarray) -> np.ndarray:
        """Numbers of the elements added up for each scale."""
        others = None if self.axis is None else tuple(axis for axis in range(elements.ndim) if axis != self.axis)
        return np.asarray(elements.sum(axis=others))

    @cached_property
    def truth(self) -> dict[str, np.ndarray]:
        """The values, and both gradients."""
        to_scale = self.codes - np.where(self.inside, self.ratio, 0)
        return {
            "values": self.codes * self.step,
            "to_x": self.upstream * self.inside,
            "to_scale": self.summed(self.upstream * to_scale),
        }

    def tolerance(self, part: str) -> float:
        """The largest error of float32. The gradient of a scale is a small difference between large sums."""
        sizes = self.summed(np.abs(self.upstream * self.codes)) if part == "to_scale" else np.abs(self.truth[part])
        return _OFF * max(float(sizes.max()), 1e-30)

    def agrees(self, part: str, expected: np.ndarray, found: Any) -> bool:
        """Whether an answer is what was expected."""
        if not isinstance(found, np.ndarray) or found.shape != np.shape(expected):
            return False
        with np.errstate(invalid="ignore", over="ignore"):
            return bool((np.abs(found - expected) <= self.tolerance(part)).all())


def questions(rng: np.random.Generator) -> list[Question]:
    """Fresh tensors of several ranks and orders in memory: clipped at both ends, halves, zeros, and scales along each axis.

    The two of a pair have the same shape and axis, and in half of the pairs the same scales.
    """

    def placed(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return in_any_order([array.astype(np.float32) for array in arrays], rng, backward=False)

    names, xs, scales, axes = zip(*_in_pairs(rng), strict=True)
    upstream = [rng.normal(0, 1, x.shape) * 2.0**exponent for x, exponent in zip(xs, _exponents(rng, len(xs)), strict=True)]
    return [Question(*one) for one in zip(names, placed(xs), placed(scales), axes, placed(upstream), strict=True)]


def in_pairs(asked: Sequence[Question], rng: np.random.Generator) -> list[dict[str, Any]]:
    """What the process gets: each pair with the drawn orders of its two forward passes and of its two backward passes."""
    pairs = list(zip(asked[::2], asked[1::2], strict=True))
    orders = rng.permutation(np.arange(len(pairs)) % 4).tolist()  # each combination for several pairs
    return [
        {"both": [one.wire, other.wire], "forward": _ORDERS[order % 2], "backward": _ORDERS[order // 2]}
        for (one, other), order in zip(pairs, orders, strict=True)
    ]


def _in_pairs(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, np.ndarray, int | None]]:
    several = list(_drawn(rng))
    alike = rng.permutation(np.arange(len(several)) % 2 == 0)
    for (name, steps, scale, axis), same in zip(several, alike, strict=True):
        others = scale if same else scale / 2 if axis is None else rng.permutation(scale)
        for each in (scale, others):
            drawn = steps()
            yield name, drawn * _along(each, drawn, axis), each, axis


def _drawn(rng: np.random.Generator) -> Iterator[tuple[str, Callable[[], np.ndarray], np.ndarray, int | None]]:
    side = tuple(int(size) for size in rng.integers(5, 10, 4))
    exponents = iter(_exponents(rng, 12))
    for name, shape, spread in (("an activation", side[:3], 60), ("an activation with clipped values", side[:2], 200)):
        one = np.array(rng.uniform(1, 2) * 2.0 ** next(exponents))
        yield name, partial(_steps, rng, shape, spread), one, None
    one = np.array(2.0 ** next(exponents))  # divides without rounding, which a half needs
    halves = np.array([-2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 126.5, -127.5])
    yield "halves and zero", partial(rng.permutation, halves), one, None
    last = int(rng.integers(2, 4))
    for name, shape, axis in (
        ("a weight (out, in, k, k)", (side[0], side[1], 3, 3), 0),
        ("a weight (in, out) with axis 1", (side[2], int(rng.integers(1000, 2000))), 1),
        ("a square weight", (side[0], side[0]), 0),
        ("a vector", (side[1],), 0),
        ("a weight (in, out, k, k) with axis 1", (side[2], 3, 3, 3), 1),
        *((f"a cube with axis {axis}", (side[3],) * 3, axis) for axis in range(3)),
        (f"a tensor of rank 4 with axis {last}", (4,) * 4, last),
    ):
        scale = rng.uniform(1, 2, shape[axis]) * 2.0 ** (next(exponents) - rng.integers(0, 8, shape[axis]))
        yield name, partial(_steps, rng, shape, 150), scale, axis


def _exponents(rng: np.random.Generator, count: int) -> np.ndarray:
    """Whole numbers over the whole range, in any order."""
    return rng.permutation(np.rint(np.linspace(_SMALLEST, _LARGEST, count)))


def _steps(rng: np.random.Generator, shape: Sequence[int], spread: float) -> np.ndarray:
    """Normal numbers in steps, none near the middle of two codes, and none near the borders of clipping."""
    drawn = rng.normal(0, spread, shape)
    steps = np.rint(drawn) + np.clip(drawn - np.rint(drawn), -0.45, 0.45)
    steps = np.where(np.abs(steps - HIGH) < 1, HIGH - 1.25, steps)
    return np.where(np.abs(steps - LOW) < 1, LOW + 1.25, steps)


def _along(scale: np.ndarray, x: np.ndarray, axis: int | None) -> np.ndarray:
    one = np.asarray(scale, np.float64)
    return one if axis is None else one.reshape([-1 if place == axis else 1 for place in range(x.ndim)])


def _other_axis(one: Question) -> np.ndarray:
    """The values of a square weight with its scales along the other axis; else the right ones, where another axis is an error."""
    if one.axis is None or one.x.ndim != 2 or one.x.shape[0] != one.x.shape[1]:
        return one.truth["values"]
    step = _along(one.scale, one.x, 1 - one.axis)
    return np.asarray(np.clip(np.rint(one.x / step), LOW, HIGH) * step)


@dataclass(frozen=True)
class Judged:
    """What was found: criteria for all and for half of the points, the first mistake in words, and where to look."""

    full: list[Criterion]
    half: list[Criterion]
    said: str = ""
    hint: str = ""


Mistake = tuple[str, str, Callable[[Question], np.ndarray], str]
_STRAIGHT = "`a + (b - a).detach()` has the value of b and the gradient of a. Which a has gradient 0 where a value is clipped?"
_SCALE = (
    "The scale divides inside and multiplies outside. Keep it in both places without `detach`, and autograd finds its gradient."
)
_OF_ANOTHER = "They are 0 where a value of another tensor was clipped, whose forward pass was in between."
_KEEP = "Each call needs its own place for what its backward pass reads: autograd's graph, or `ctx.save_for_backward`."
# The part that is wrong, the mistake in words, what it gives, and where to look.
_MISTAKES: Sequence[Mistake] = (
    ("values", "These are codes, not values.", lambda one: one.codes, "Multiply by the scale again after rounding."),
    ("values", "Nothing is clipped.", lambda one: np.rint(one.ratio) * one.step, "Codes of INT8 are -128 to 127."),
    ("values", "Codes are clipped to -127.", lambda one: np.maximum(one.codes, -HIGH) * one.step,
     "QuantizeLinear has the code -128 as well."),
    ("values", "Codes are clipped to 128.", lambda one: np.clip(np.rint(one.ratio), LOW, -LOW) * one.step, "The largest code is 127."),
    ("values", "Halves are rounded away from zero.", lambda one: _away(one), "QuantizeLinear rounds half to even, as torch.round does."),
    ("values", "Values are rounded down.", lambda one: np.clip(np.floor(one.ratio), LOW, HIGH) * one.step, "Round to nearest."),
    ("values", "Codes are the unsigned ones, 0 to 255.", lambda one: np.clip(np.rint(one.ratio), 0, 255) * one.step,
     "TensorRT's INT8 is signed: -128 to 127."),
    ("values", "The scales lie along the other axis.", lambda one: _other_axis(one),
     "Element k of the scale belongs to index k along `axis`. Which shape must it have to broadcast against x?"),
    ("to_x", "They are 0 everywhere: this is the true gradient of rounding.", lambda one: 0 * one.truth["to_x"], _STRAIGHT),
    ("to_x", "They also pass where a value is clipped.", lambda one: one.upstream.astype(np.float64), _STRAIGHT),
    ("to_x", "They are divided by the scale.", lambda one: one.truth["to_x"] / one.step, _STRAIGHT),
    ("to_x", "They are multiplied by the scale.", lambda one: one.truth["to_x"] * one.step, _STRAIGHT),
    ("to_scale", "They are 0.", lambda one: 0 * one.truth["to_scale"], _SCALE),
    ("to_scale", "They are those of the codes alone.", lambda one: one.summed(one.upstream * one.codes), _SCALE),
)  # fmt: skip


def _away(one: Question) -> np.ndarray:
    rounded = np.trunc(one.ratio + np.copysign(0.5, one.ratio))
    return np.asarray(np.clip(rounded, LOW, HIGH) * one.step)


def judged(asked: Sequence[Question], found: Sequence[Arrays | str]) -> Judged:
    """Compare what came back with the oracle."""
    right = {part: [_right(one, answer, part) for one, answer in zip(asked, found, strict=True)] for part in _PARTS}
    criteria = {
        part: Criterion(f"tensors with the right {_NAMES[part]}", f"{sum(right[part])} of {len(asked)}", f"{len(asked)}", all(right[part]))
        for part in _PARTS
    }  # fmt: skip
    full = list(criteria.values())
    half = [Criterion(one.name, one.found, one.bound, one.met, HALF) for one in full[:2]]
    assert all(one.needed_for == ALL for one in full)
    part = next((part for part in _PARTS if not all(right[part])), None)
    if part is None:
        return Judged(full, half)
    wrong = [(one, answer) for one, answer, ok in zip(asked, found, right[part], strict=True) if not ok]
    others = [asked[place ^ 1] for place, ok in enumerate(right[part]) if not ok]
    said, hint = _described(part, *wrong[0])
    for of, words, mistake, advice in _MISTAKES:
        if of == part and all(
            not isinstance(answer, str) and one.agrees(part, mistake(one), answer.get(part)) for one, answer in wrong
        ):
            return Judged(full, half, f"{said} {words}", advice)
    if part == "to_x" and all(
        not isinstance(answer, str) and one.agrees(part, one.upstream * other.inside, answer.get(part))
        for (one, answer), other in zip(wrong, others, strict=True)
    ):
        return Judged(full, half, f"{said} {_OF_ANOTHER}", _KEEP)
    return Judged(full, half, said, hint)


def _described(part: str, one: Question, answer: Arrays | str) -> tuple[str, str]:
    if isinstance(answer, Unwritten):
        return "fake_quantize is still empty.", "Write its body in task 1 and run the cell, which writes qat.py."
    where = f"fake_quantize of {one.name}, x {one.x.shape}, scale {one.scale.shape}, axis {one.axis}"
    if isinstance(answer, str):
        hint = "Call it in the notebook with a tensor and a scale of these shapes: the same error appears there."
        return f"{where}, failed: {answer}.", hint
    if part not in answer:
        said = "there are no gradients of x" if part == "to_x" else f"there are no {_NAMES[part]}"
        return f"{where}: {said}.", _SCALE if part == "to_scale" else _STRAIGHT
    truth, have = one.truth[part], answer[part]
    if not isinstance(have, np.ndarray) or have.shape != truth.shape:
        return f"{where}: the {_NAMES[part]} have the shape {np.shape(have)}, expected {truth.shape}.", "Keep the shape of x."
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(have - truth) <= one.tolerance(part))
    place = tuple(int(index) for index in np.argwhere(bad)[0]) if bad.any() and have.ndim else ()
    said = f"{where}: the first wrong of the {_NAMES[part]} is {have[place]:.5g}, expected {truth[place]:.5g}."
    general = {"values": "Divide by the scale, round, clip to -128 and 127, multiply.", "to_x": _STRAIGHT, "to_scale": _SCALE}[
        part
    ]
    if part == "values" and one.axis is not None:
        general = "Element k of the scale belongs to index k along `axis`. Which shape must it have to broadcast against x?"
    return said, general


def _right(one: Question, answer: Arrays | str, part: str) -> bool:
    return not isinstance(answer, str) and one.agrees(part, one.truth[part], answer.get(part))
