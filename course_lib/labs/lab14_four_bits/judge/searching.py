"""Secret weights for `search`, the error that its scales leave, and the mistakes that leave such errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.learner_answers import Unwritten
from course_lib.labs.lab14_four_bits.judge.functions import Answer

MOST = 1.04  # times the reference's error
# Of the error of round to nearest. What leaves more is also above `MOST`: the reference leaves at most 0.9, measured in 12 draws.
LESS_THAN_NEAREST = 0.97
_ALIKE = 0.015  # relative difference of two errors that the same method leaves, with other fractions
_SMALLEST = np.float32(2.0**-24)  # positive number of FP16


@dataclass(frozen=True)
class Question:
    """A weight whose scales are wanted.

    Attributes:
        name: its special property.
        weight: float32 ``(out, in)``.
        block: a divisor of `in`.
        importance: float32 ``(in,)``, at least 0.
    """

    name: str
    weight: np.ndarray
    block: int
    importance: np.ndarray

    @property
    def even(self) -> bool:
        """Whether all inputs matter equally."""
        return bool((self.importance == self.importance[0]).all())

    @property
    def shape(self) -> tuple[int, int]:
        """Of the scales."""
        return len(self.weight), self.weight.shape[1] // self.block

    def error(self, scales: np.ndarray, importance: np.ndarray | None = None) -> float:
        """The weighted squared error that scales leave, stored in FP16, with the nearest codes from -7 to 7."""
        parts = self.weight.reshape(*self.shape, self.block)
        stored = scales.astype(np.float16).astype(np.float32)[..., None]
        wrong = np.clip(np.rint(parts / stored), -7, 7) * stored - parts
        matters = (self.importance if importance is None else importance).reshape(1, -1, self.block)
        return float((matters * wrong.astype(np.float64) ** 2).sum())

    def nearest(self) -> np.ndarray:
        """The scales of round to nearest."""
        largest = np.abs(self.weight.reshape(*self.shape, self.block)).max(-1) / np.float32(7)
        return np.maximum(largest, _SMALLEST)

    def best(self, importance: np.ndarray) -> np.ndarray:
        """The scales that the reference finds."""
        from course_lib.labs.lab14_four_bits.reference import scales

        return scales.search(self.weight, self.block, importance)

    @cached_property
    def reference(self) -> float:
        """The error that the reference's scales leave."""
        return self.error(self.best(self.importance))


def questions(rng: np.random.Generator) -> list[Question]:
    """Fresh weights: three with equal importance, and three whose inputs differ."""
    return [Question(name, w.astype(np.float32), block, i.astype(np.float32)) for name, w, block, i in _drawn(rng)]


def _drawn(rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray, int, np.ndarray]]:
    size = 2.0 ** rng.uniform(-6, -3)
    rows = int(rng.integers(40, 60))
    even = np.full(192, 2.0 ** rng.uniform(-2, 2))
    uneven = np.exp(rng.normal(0, 1.5, 192))
    yield "a bell", rng.normal(0, size, (rows, 192)), 64, even
    yield "heavy tails", rng.standard_t(3, (rows, 288)) * size, 96, np.full(288, even[0])
    zeros = rng.normal(0, size, (rows, 192))
    zeros[rng.random(rows) < 0.3, 32 : 32 + 48] = 0  # blocks of zeros, and a block that is half zeros
    yield "blocks of zeros", zeros, 32, even
    yield "inputs of different size", rng.normal(0, size, (rows, 192)), 64, uneven
    large = rng.choice(192, 6, replace=False)
    weight, matters = rng.normal(0, size, (rows, 192)), uneven.copy()
    weight[:, large] /= 6
    matters[large] *= 36
    yield "a few large channels", weight, 32, matters
    yield "very small scales", rng.normal(0, 2.0**-20, (rows, 192)), 16, uneven


@dataclass(frozen=True)
class Searched:
    """A question with the answer to it."""

    question: Question
    answer: Answer

    @cached_property
    def problem(self) -> str:
        """Why the answer is not scales at all, or ""."""
        if isinstance(self.answer, str):
            return f"failed: {self.answer}"
        if self.answer.dtype.kind != "f":
            return f"returned an array of {self.answer.dtype}, expected numbers with a fraction, such as float32"
        if self.answer.shape != self.question.shape:
            return f"returned the shape {self.answer.shape}, expected (out, in / block) = {self.question.shape}"
        with np.errstate(over="ignore", invalid="ignore"):
            stored = self.answer.astype(np.float16)
        bad = ~(np.isfinite(stored) & (stored > 0))
        if bad.any():
            row, column = np.argwhere(bad)[0]
            return f"returned the scale {self.answer[row, column]:g} for block {column} of row {row}, which is not positive in FP16"
        return ""

    @cached_property
    def of_nearest(self) -> float:
        """The error relative to that of round to nearest."""
        assert not isinstance(self.answer, str)
        return self.question.error(self.answer) / self.question.error(self.question.nearest())

    @cached_property
    def ratio(self) -> float:
        """The error relative to the reference's."""
        assert not isinstance(self.answer, str)
        return self.question.error(self.answer) / self.question.reference


def criteria(found: Sequence[Searched]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points and for half of them, of answers without a problem."""
    full = [_criterion(one, ALL) for one in found]
    half = [_criterion(one, HALF) for one in found if one.question.even]
    return full, half


def criteria_without_reference(found: Sequence[Searched]) -> tuple[list[Criterion], list[Criterion]]:
    """What is needed for all points and for half of them, and can be told without the reference."""
    name, bound = "squared error of the weights with {}, relative to round to nearest", f"at most {LESS_THAN_NEAREST:g}"
    full = [
        Criterion(name.format(one.question.name), f"{one.of_nearest:.3f}", bound, one.of_nearest <= LESS_THAN_NEAREST)
        for one in found
    ]
    return full, [replace(one, needed_for=HALF) for one, asked in zip(full, found, strict=True) if asked.question.even]


def _criterion(one: Searched, needed_for: str) -> Criterion:
    name = f"squared error of the weights with {one.question.name}, relative to the reference's"
    return Criterion(name, f"{one.ratio:.3f}", f"at most {MOST:g}", one.ratio <= MOST, needed_for)


def problem(found: Sequence[Searched]) -> tuple[str, str]:
    """The first answer that is not scales at all, in words, with a hint; "" if there is none."""
    for one in found:
        if isinstance(one.answer, Unwritten):
            return "search is still empty.", "Write its body in task 2 and run the cell, which writes scales.py."
        if one.problem:
            where = f"search of the weights with {one.question.name} {one.problem}."
            if isinstance(one.answer, str):
                return where, "Call it in the notebook with the weight of one product: the same error appears there."
            if one.answer.dtype.kind != "f":
                return (
                    where,
                    "An array of integers cuts off the fraction of each scale. Which line makes the array that you return?",
                )
            if one.answer.shape == (*one.question.shape, 1):
                return where, "The last axis has only one number, from keepdims=True. Return `scales[..., 0]`."
            if one.answer.shape == one.question.shape[::-1]:
                return where, "Return one row for each output. Task 3 transposes the scales."
            if one.answer.shape != one.question.shape:
                return where, "Each row of the weight belongs to one output. A block is `block` neighbors of a row."
            return (
                where,
                "Which scale does a block of zeros get, and what does a very small scale become in FP16? Any positive scale keeps zeros.",
            )
    return "", ""


# A recognized way to find the scales, and where to look.
_MISTAKES: Sequence[tuple[str, Callable[[Question], np.ndarray], str]] = (
    ("These are the scales of round to nearest", Question.nearest, "Try smaller scales for each block, and keep the best one."),
    (
        "One fraction was chosen for the whole weight",
        lambda one: _common(one),
        "Blocks differ in their best scale: keep the smallest error of each block, not of the sum.",
    ),
    (
        "The largest code is taken to be 8",
        lambda one: one.nearest() * np.float32(7 / 8),
        "The largest code is 7, in lecture 16 and in the grader.",
    ),
)


def _common(one: Question) -> np.ndarray:
    return min((np.maximum(one.nearest() * np.float32(f), _SMALLEST) for f in np.linspace(0.3, 1.0, 71)), key=one.error)


def recognized(found: Sequence[Searched]) -> tuple[str, str]:
    """The mistake that leaves the errors of the answers that are not good enough, in words, with a hint."""
    wrong = [one for one in found if one.ratio > MOST]
    if wrong and all(not one.question.even and _ignores_inputs(one) for one in wrong):
        hint = "Multiply each squared error with the importance of its input before you add the errors of a block."
        return "These scales are the best ones for equal importance.", hint
    if wrong and all(map(_has_strided_blocks, wrong)):
        hint = "Block k of a row has its weights `k * block` to `(k + 1) * block - 1`. Which axis of `parts` is the block?"
        return "The weights of a block are not neighbors in their row.", hint
    for words, scales, hint in _MISTAKES:
        if wrong and all(_alike(one, scales(one.question)) for one in wrong):
            return f"{words}.", hint
    if wrong and all(one.question.name == "very small scales" for one in wrong):
        return "", "Round each scale that you try to FP16 before you compute its error: the file stores the rounded scale."
    if wrong and all(one.question.name == "heavy tails" for one in wrong):
        return (
            "",
            "How far below round to nearest do your fractions reach? The best scale may clip one very large weight to a third.",
        )
    return (
        "",
        "For one block: scale, codes from -7 to 7, weighted squared error. Which scales do you try, and how far apart are they?",
    )


def _ignores_inputs(one: Searched) -> bool:
    question, equal = one.question, np.ones_like(one.question.importance)
    best = question.error(question.best(equal), equal)
    return question.error(one.answer, equal) <= MOST * best  # type: ignore[arg-type]


def _has_strided_blocks(one: Searched) -> bool:
    """Whether a row was reshaped to (block, number of blocks), so that each n-th weight belongs to a block."""
    question = one.question
    order = np.arange(question.weight.shape[1]).reshape(question.block, -1).T.ravel()
    strided = replace(question, weight=question.weight[:, order], importance=question.importance[order])
    return strided.error(one.answer) <= MOST * strided.reference  # type: ignore[arg-type]


def _alike(one: Searched, scales: np.ndarray) -> bool:
    theirs = one.question.error(one.answer)  # type: ignore[arg-type]
    return bool(abs(theirs / one.question.error(np.maximum(scales, _SMALLEST)) - 1) < _ALIKE)
