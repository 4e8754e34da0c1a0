"""Submissions for lab 06: right in another way, or with the mistakes that learners make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from course_lib.labs.framework import submission
from course_lib.labs.lab06_qat import checks, given, reference
from tests.labs.submissions import Mistake, changed, table

LEARNER = "ada"
MADE = table("lab06")


def save_qat(changes: Sequence[Sequence[str]], folder: Path) -> None:
    """The file of task 3, which has its own autograd function, with other passages."""
    (folder / checks.QAT).write_text(changed(MADE["qat"], changes))


def save_float_layers(names: tuple[str, ...], folder: Path) -> None:
    """The choice of task 1."""
    submission.write(folder / checks.CHOICES, LEARNER, float_layers=names)


def save_ranges(scales: Callable[[], Mapping[str, float]], folder: Path) -> None:
    """The choice of task 2."""
    submission.write(folder / checks.CHOICES, LEARNER, input_scales=scales())


def times_minmax(fraction: float) -> dict[str, float]:
    """A fraction of each scale of min-max calibration."""
    return {name: fraction * float(one.input_scale or 0) for name, one in given.calibration(LEARNER).items()}


def calibrated() -> dict[str, dict[str, np.ndarray]]:
    """Rounded and not trained."""
    return {
        name: {
            "codes": one.weight,
            "scale": np.asarray(one.scale),
            "bias": one.bias,
            "input_scale": np.float32(one.input_scale),
        }
        for name, one in given.calibration(LEARNER).items()
    }


def trained_in_float() -> dict[str, dict[str, np.ndarray]]:
    """Other weights that are right in float, with the input scales of the calibration."""
    rng = np.random.default_rng(0)
    moved = {
        name: one["codes"] - (rng.random(one["codes"].shape) < 0.05) * np.sign(one["codes"])
        for name, one in calibrated().items()
    }
    return {name: {**one, "codes": moved[name].astype(np.int8)} for name, one in calibrated().items()}


def save_trained(network: Callable[[], Mapping[str, Mapping[str, np.ndarray]]], folder: Path) -> None:
    """The file of task 4."""
    reference.save(network(), folder)
    submission.begin(folder / checks.CHOICES, LEARNER)


def another(folder: Path) -> None:
    """Another right answer: one layer more in float, another percentile, an autograd function, and fixed ranges."""
    scales = reference.percentile_scales(LEARNER, 99.6)
    submission.write(folder / checks.CHOICES, LEARNER, float_layers=("stem", "depth2", "depth1"), input_scales=scales)
    save_qat([], folder)
    save_trained(partial(reference.trained, LEARNER, learned_scales=False), folder)


MISTAKES = {
    "the best single layer": Mistake(
        partial(save_float_layers, ("depth2",)), "kernels", "partial", "share of the lost accuracy that is recovered is 0.6"
    ),
    "too many layers in float": Mistake(
        partial(save_float_layers, ("depth1", "depth2", "project2")), "kernels", "none", "(in float: depth1, depth2, project2) is 0.69"
    ),
    "min-max ranges": Mistake(
        partial(save_ranges, partial(times_minmax, 1.0)), "ranges", "none", "These are the scales of min-max calibration"
    ),
    "one fraction for all ranges": Mistake(
        partial(save_ranges, partial(times_minmax, 0.55)), "ranges", "partial", "all points need at least 0.85"
    ),
    "no gradient passes": Mistake(
        partial(save_qat, [("return upstream * inside, ", "return upstream * 0, ")]), "gradient", "none", "they are 0 everywhere"
    ),
    "the scale gets no gradient": Mistake(
        partial(save_qat, [("(upstream * to_scale).sum_to_size(scale.shape)", "None")]), "gradient", "partial", "there are none"
    ),
    "nothing was trained": Mistake(partial(save_trained, calibrated), "recover", "none", "nothing was trained"),
    "trained in float": Mistake(
        partial(save_trained, trained_in_float), "recover", "none", "they were trained in float, or with other input scales"
    ),
}  # fmt: skip
