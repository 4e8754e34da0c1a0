"""What lab 06 examines in each task: what an engine of the submitted numbers answers on fresh images, and one function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines import Plan
from course_lib.engines.compiler import with_operators
from course_lib.errors import BuildError, CourseError, ExaminerFault
from course_lib.exercises.exercise import Case
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_least
from course_lib.labs.framework.examination import Examiner, ours
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.framework.racing import fresh_images, logits
from course_lib.labs.framework.runner import Failed, call, case_criterion
from course_lib.labs.framework.submission import read_json, submitted
from course_lib.labs.lab06_qat import given
from course_lib.labs.lab06_qat.given import HIGH, LOW, RECIPE, WEIGHTS, Stored
from course_lib.labs.lab06_qat.layers import LAYERS
from course_lib.labs.lab06_qat.sandboxed import call_qat
from course_lib.models import Digits
from course_lib.profiling.layer_tables.dtypes import int8_layers

CHOICES, QAT = "choices.json", call_qat.FILE
MAX_BYTES = 64 << 10  # of each of these files
IMAGES = 2000  # secret: the interval of a recovered share is 0.01 to 0.02
LEAST_INT8 = 0.85  # of the weights, in layers that compute in INT8: the two depthwise layers have 0.12
# Recovered shares of the lost accuracy, in full and for half of the points. Measured on 450 images:
KERNELS_FULL, KERNELS_HALF = 0.9, 0.6  # 0.95 with the best two layers in float, 0.75 with the best one
# 0.91 with a percentile of 99.5, 0.73 with half of each range, 0.53 with the smallest squared error.
RANGES_FULL, RANGES_HALF = 0.85, 0.65
TRAINED_FULL, TRAINED_HALF = 0.95, 0.8  # 0.99 with training
_ALIKE = 0.99  # share of a weight's codes that are those of calibration, if nothing was trained
_USUAL_LOSS = 0.03  # of a network that is accurate


@dataclass(frozen=True)
class Secret:
    """Fresh images, and the accuracy that the given network has on them in float and after min-max calibration."""

    images: Digits
    floating: float
    calibrated: float


@dataclass(frozen=True)
class Recovered:
    """An accuracy on secret images."""

    accuracy: float
    secret: Secret

    @property
    def share(self) -> float:
        """Of the accuracy that calibration loses: 0 as after calibration, 1 as in float."""
        return (self.accuracy - self.secret.calibrated) / (self.secret.floating - self.secret.calibrated)

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the share."""
        error = np.sqrt(self.accuracy * (1 - self.accuracy) / len(self.secret.images))
        return float(1.96 * error / (self.secret.floating - self.secret.calibrated))

    def reaches(self, least: float) -> bool:
        """Whether the interval of the share reaches up to a bound. What is below it is proved to recover less."""
        return self.share + self.half_width >= least

    def at_least(self, least: float, needed_for: str, hint: str) -> Criterion:
        """The share and its interval, with the accuracy, against a bound."""
        found = f"{self.share:.3f} ± {self.half_width:.3f} (accuracy {self.accuracy:.1%})"
        name = "share of the lost accuracy that is recovered"
        return Criterion(name, found, f"at least {least:g} within the interval", self.reaches(least), needed_for, hint)


class QatWork(Work):
    """What the checks of lab 06 read, build and run."""

    learner_file = CHOICES

    @step
    def secret(self) -> Secret:
        """Images from the grader's seed, which are not part of the course."""
        import torch

        images = given.in_order_of(self.learner, fresh_images(self.examiner, IMAGES))
        with torch.inference_mode():
            floating = given.float_model(self.learner)(torch.from_numpy(images.images)).numpy()
        calibrated = given.accuracy(given.calibration(self.learner), images)
        return Secret(images, given.share_right(floating, images), calibrated)

    @step
    def choices(self) -> dict[str, Any]:
        """The choices of tasks 1 and 2."""
        choices = read_json(submitted(self.folder, CHOICES), MAX_BYTES)
        if not isinstance(choices, dict):
            raise BuildError(f"{CHOICES} has no names and values: write it with submission.write")
        return choices

    @step
    def with_float_layers(self) -> dict[str, Stored]:
        """The calibrated network with the layers in float that task 1 names."""
        names = self.choices.get("float_layers")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise BuildError(f"{CHOICES} has no list of names in float_layers. Solve task 1, then run its cell again")
        return self._made(given.keep_in_float, names)

    @step
    def with_ranges(self) -> dict[str, Stored]:
        """The calibrated network with the input scales of task 2."""
        scales = self.choices.get("input_scales")
        if not isinstance(scales, dict) or not all(isinstance(scale, float) for scale in scales.values()):
            raise BuildError(f"{CHOICES} has no number for each layer in input_scales. Solve task 2, then run its cell again")
        if missing := [name for name in LAYERS if name not in scales]:
            raise BuildError(f"{CHOICES}: input_scales has no number for {', '.join(missing)}")
        return self._made(given.with_input_scales, scales)

    def _made(self, make: Callable[[Any, str], dict[str, Stored]], choice: Any) -> dict[str, Stored]:
        learner = self.learner
        try:
            return make(choice, learner)
        except CourseError as error:
            raise BuildError(f"{CHOICES}: {error}") from None

    @step
    def trained(self) -> dict[str, Stored]:
        """The network of task 4."""
        return given.read_trained(submitted(self.folder, given.TRAINED))

    @step
    def plan(self) -> Plan:
        """The engine of task 1's network as the builder makes it."""
        return _build(self.examiner, self.written("float_layers", self.with_float_layers))

    def written(self, name: str, network: Mapping[str, Stored]) -> Path:
        """The course's graph of a network, as a file."""
        path = self.scratch / f"{name}.onnx"
        path.write_bytes(given.graph(network).SerializeToString())
        return path

    def recovered(self, name: str, network: Mapping[str, Stored], built: Plan | None = None) -> Recovered:
        """What an engine of this network answers on the secret images."""
        self.examiner.begins(f"{name}: your numbers in an engine", 5)
        with self.examiner.engine(self.examiner.runnable(self.written(name, network), RECIPE, built)) as engine:
            answers = logits(engine, self.secret.images.images, [given.BATCH])
        found = Recovered(given.share_right(answers, self.secret.images), self.secret)
        self.figures[f"{name}_recovered"] = found.share
        return found


# ---- task 1


def _build(examiner: Examiner, model: Path) -> Plan:
    """The engine of one of the course's own graphs, with the names of its nodes: TensorRT 8.6's interpreter cannot read them."""
    return with_operators(examiner.build(model, RECIPE), model)


def kernels(work: QatWork) -> Iterator[Criterion]:
    """Which layers compute in INT8, from the layer table, and the accuracy that the others bring back."""
    in_float, share = _int8_share(work.plan)
    if share < LEAST_INT8:  # a builder need not have INT8 kernels for each kind of layer
        with ours():
            _, most = _int8_share(_build(work.examiner, work.written("calibrated", given.calibration(work.learner))))
        share = share / most if most else 0.0
    work.figures["int8_weights"] = share
    hint = "Which layers bring back most accuracy for each weight that stays in float?"
    name = f"share of the weights in INT8 layers (in float: {', '.join(in_float) or 'none'})"
    yield at_least(name, share, LEAST_INT8, HALF, hint=hint)
    found = work.recovered("kernels", work.with_float_layers, work.plan)
    hint = "Measure each layer alone, then each pair with the best one. Do the two best single layers make the best pair?"
    yield found.at_least(KERNELS_HALF, HALF, hint)
    yield found.at_least(KERNELS_FULL, ALL, hint)


def _int8_share(built: Plan) -> tuple[list[str], float]:
    """The layers that compute in float, and the share of the weights in the others."""
    integer, floating = int8_layers(built.layers)
    if set(WEIGHTS) - {*integer, *floating}:
        raise ExaminerFault("the builder's layer table does not show every layer of the lab's graph")
    return floating, sum(WEIGHTS[name] for name in integer) / sum(WEIGHTS.values())


# ---- task 2


def ranges(work: QatWork) -> Iterator[Criterion]:
    """The accuracy that other input scales bring back, without training."""
    found = work.recovered("ranges", work.with_ranges)
    hint = "How many values does each layer clip with your scales? Compare several rules by the accuracy on training images."
    chosen, minmax = (
        [one.input_scale for one in network.values()] for network in (work.with_ranges, given.calibration(work.learner))
    )
    if np.allclose(np.asarray(chosen, float), np.asarray(minmax, float), rtol=0.01, atol=0):
        hint = "These are the scales of min-max calibration. What does a smaller range give to small channels?"
    yield found.at_least(RANGES_HALF, HALF, hint)
    yield found.at_least(RANGES_FULL, ALL, hint)


# ---- task 3

_STRAIGHT = "`a + (b - a).detach()` has the value of b and the gradient of a. Which a has gradient 0 where a value is clipped?"
_SCALE = (
    "The scale divides inside and multiplies outside. Keep it in both places without `detach`, and autograd finds its gradient."
)
_VALUES = "Divide by the scale, round, clip to -128 and 127, multiply. With an axis, which shape must the scale have?"


@dataclass(frozen=True)
class Rounding:
    """A call of `fake_quantize`, in float64 and with the scale in a shape that broadcasts against `x`."""

    x: np.ndarray
    step: np.ndarray
    axis: int | None
    upstream: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """`x` in steps."""
        return np.asarray(self.x / self.step)

    @property
    def codes(self) -> np.ndarray:
        """The codes, half to even."""
        return np.clip(np.rint(self.ratio), LOW, HIGH)

    @property
    def inside(self) -> np.ndarray:
        """Where a value was rounded, and not clipped."""
        return np.asarray((self.ratio >= LOW) & (self.ratio <= HIGH))

    def summed(self, elements: np.ndarray) -> np.ndarray:
        """Numbers of the elements, times the upstream gradient, added up for each scale."""
        others = None if self.axis is None else tuple(axis for axis in range(elements.ndim) if axis != self.axis)
        return np.asarray((self.upstream * elements).sum(axis=others))


# By part of the answer: what is right, the largest error in float32, and what each usual mistake gives.
_PARTS: Mapping[str, tuple[Callable[[Rounding], np.ndarray], float, Mapping[str, Callable[[Rounding], Any]]]] = {
    "values": (
        lambda one: one.codes * one.step,
        1e-5,
        {
            "these are codes, not values": lambda one: one.codes,
            "nothing is clipped": lambda one: np.rint(one.ratio) * one.step,
            "codes are clipped to -127": lambda one: np.maximum(one.codes, -HIGH) * one.step,
            "codes are clipped to 128": lambda one: np.clip(np.rint(one.ratio), LOW, -LOW) * one.step,
            "halves are rounded away from zero": lambda one: np.clip(_away(one.ratio), LOW, HIGH) * one.step,
            "values are rounded down": lambda one: np.clip(np.floor(one.ratio), LOW, HIGH) * one.step,
        },
    ),
    "to_x": (
        lambda one: one.upstream * one.inside,
        1e-5,
        {
            "there are none": lambda one: None,
            "they are 0 everywhere, the true gradient of rounding": lambda one: 0 * one.upstream,
            "they also pass where a value is clipped": lambda one: one.upstream,
            "they are divided by the scale": lambda one: one.upstream * one.inside / one.step,
            "they are multiplied by the scale": lambda one: one.upstream * one.inside * one.step,
        },
    ),
    "to_scale": (
        lambda one: one.summed(one.codes - np.where(one.inside, one.ratio, 0)),
        1e-2,  # a small difference between large sums
        {
            "there are none": lambda one: None,
            "they are 0": lambda one: one.summed(0 * one.x),
            "they are those of the codes alone": lambda one: one.summed(one.codes),
        },
    ),
}


def gradient(work: QatWork) -> Iterator[Criterion]:
    """Values and gradients of `fake_quantize` on fresh tensors."""
    work.examiner.begins("gradient: your rounding on fresh tensors", 5)
    asked = roundings(work.rng())
    arguments = [_arguments(one) for one in asked.values()]
    results = call(submitted(work.folder, QAT), {"fake_quantize": arguments}, work.examiner, program=call_qat)["fake_quantize"]
    for part, name, needed_for, hint in (
        ("values", "tensors with the right values", HALF, _VALUES),
        ("to_x", "tensors with the right gradients of x", HALF, _STRAIGHT),
        ("to_scale", "tensors with the right gradients of the scale", ALL, _SCALE),
    ):
        right, tolerance, mistakes = _PARTS[part]
        cases = [
            Case(
                given_,
                right(one),
                {words: mistake(one) for words, mistake in mistakes.items()},
                shown=shown,
                tolerance=tolerance,
            )
            for (shown, one), given_ in zip(asked.items(), arguments, strict=True)
        ]
        parts = [one if isinstance(one, Failed) else one.get(part) for one in results]
        yield case_criterion(name, cases, parts, needed_for, hint=hint)


def roundings(rng: np.random.Generator) -> dict[str, Rounding]:
    """Fresh calls: without an axis and with each kind of axis, clipped at both ends, halves and zeros."""
    a, b, c = (int(size) for size in rng.integers(4, 8, 3))
    halves = rng.permutation([-127.5, -2.5, -1.5, -0.5, 0.0, 0.5, 1.5, 2.5, 126.5])
    drawn = {
        f"an activation ({a}, {b}, {c})": (_steps(rng, (a, b, c)), None),
        "halves and zero": (halves, None),
        f"a weight ({a}, {b}, 3, 3), axis 0": (_steps(rng, (a, b, 3, 3)), 0),
        f"a square weight ({c}, {c}), axis 1": (_steps(rng, (c, c)), 1),
        f"a cube ({b}, {b}, {b}), axis 1": (_steps(rng, (b, b, b)), 1),
        f"a vector ({c},), axis 0": (_steps(rng, (c,)), 0),
    }
    return {name: _rounding(rng, steps, axis) for name, (steps, axis) in drawn.items()}


def _rounding(rng: np.random.Generator, steps: np.ndarray, axis: int | None) -> Rounding:
    count = () if axis is None else (steps.shape[axis],)
    scale = 2.0 ** rng.integers(-6, 3, count)  # divides without rounding, which a half needs
    step = scale if axis is None else scale.reshape([-1 if place == axis else 1 for place in range(steps.ndim)])
    return Rounding(steps * step, np.asarray(step), axis, rng.normal(0, 1, steps.shape))


def _steps(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers in steps, a tenth of them clipped, none near the middle of two codes or near the borders of clipping."""
    drawn = rng.normal(0, 80, shape)
    steps = np.rint(drawn) + np.clip(drawn - np.rint(drawn), -0.45, 0.45)
    steps = np.where(np.abs(steps - HIGH) < 1, HIGH - 1.25, steps)
    return np.where(np.abs(steps - LOW) < 1, LOW + 1.25, steps)


def _arguments(one: Rounding) -> tuple[Any, ...]:
    scale = one.step.reshape(() if one.axis is None else (-1,))
    return one.x.astype(np.float32), scale.astype(np.float32), one.axis, one.upstream.astype(np.float32)


def _away(ratio: np.ndarray) -> np.ndarray:
    return np.asarray(np.trunc(ratio + np.copysign(0.5, ratio)))


# ---- task 4


def recover(work: QatWork) -> Iterator[Criterion]:
    """The accuracy of the trained network, all of it in INT8."""
    found = work.recovered("recover", work.trained)
    hint = _hint(work.trained, given.calibration(work.learner), found)
    yield found.at_least(TRAINED_HALF, HALF, hint)
    yield found.at_least(TRAINED_FULL, ALL, hint)


def _hint(network: Mapping[str, Stored], calibrated: Mapping[str, Stored], found: Recovered) -> str:
    """Why a network loses so much, and where to look."""
    if all(_is_rounded(one, calibrated[name]) for name, one in network.items()):
        return (
            "The codes are those of the given network: nothing was trained. "
            "Is the gradient of your fake_quantize zero? Do you store the trained weights?"
        )
    if found.share >= TRAINED_HALF:
        return (
            "Which ranges does the training begin with? Min-max leaves small channels few steps, and input scales can be trained as well. "
            "A learning rate of a few thousandths that decays to 0 is a good start."
        )
    without = given.accuracy(network, found.secret.images, round_inputs=False)
    if without > found.secret.floating - _USUAL_LOSS:
        return (
            f"Without the rounding of inputs, these weights reach {without:.1%}: they were trained in float, or with other input scales. "
            "Round in the forward pass of the training, and store its input scales."
        )
    return (
        "Does the loss fall during training? Compare the accuracy before you store the network with the accuracy of the file."
    )


def _is_rounded(one: Stored, calibrated: Stored) -> bool:
    """Whether a layer has the codes and scales of calibration, so that it was rounded and not trained."""
    assert one.scale is not None and calibrated.scale is not None
    return bool((one.weight == calibrated.weight).mean() > _ALIKE and np.allclose(one.scale, calibrated.scale, rtol=1e-3))
