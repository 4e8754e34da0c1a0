"""Secret codes for `pack` and `unpack`, and the mistakes that give what a learner's functions returned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.framework.learner_answers import Unwritten, in_any_order
from course_lib.labs.lab14_four_bits.judge.functions import Answer

_LARGE = (257, 360)  # sizes of the axes of the largest array: more codes than 16 bits can number, at most 129,600


@dataclass(frozen=True)
class Question:
    """Codes from -8 to 7, int8 of any shape and order in memory, and their bytes.

    Attributes:
        given: the same bytes for `unpack`, in another order in memory.
    """

    codes: np.ndarray
    given: np.ndarray

    @property
    def packed(self) -> np.ndarray:
        """The right bytes."""
        return _joined(_halves(self.codes))


def questions(rng: np.random.Generator) -> list[Question]:
    """Fresh codes of even and odd numbers, from one to 129,600, along one to six axes, with every code among them."""
    several = [*(rng.integers(-8, 8, shape) for shape in _shapes(rng)), rng.permutation(np.arange(-8, 8))]
    codes = in_any_order([one.astype(np.int8) for one in several], rng)
    packed = in_any_order([_joined(_halves(one)) for one in codes], rng)
    return [Question(*pair) for pair in zip(codes, packed, strict=True)]


def _shapes(rng: np.random.Generator) -> tuple[tuple[int, ...], ...]:
    odd, even, *cube = (int(size) for size in rng.integers(2, 6, 2 + rng.integers(4, 7)))
    large = (int(size) for size in rng.integers(*_LARGE, 2, endpoint=True))
    return (2 * odd + 1, 2 * even + 1), (2 * even, odd + 1), tuple(cube), tuple(large), (1,)


@dataclass(frozen=True)
class Packing:
    """What was found for one function.

    Attributes:
        right, total: calls with the right answer, and all of them.
        said: the first wrong answer in words, "" if all are right.
        hint: where to look.
    """

    right: int
    total: int
    said: str = ""
    hint: str = ""


_HALVES = (
    "The first of two codes is in the low four bits of a byte. Print hex(...) of the byte for the codes 1 and 2: it is 0x21."
)
_SIGN = (
    "A code is four bits in two's complement: -1 is 1111, and -8 is 1000. Which operation keeps the low four bits of an int8?"
)
_ODD = "If the number of codes is odd, the last byte has one code and four bits of zero."


def _halves(codes: np.ndarray) -> np.ndarray:
    return codes.ravel().astype(np.uint8) & 15


def _joined(halves: np.ndarray, *, swapped: bool = False) -> np.ndarray:
    halves = np.append(halves, np.uint8(0)) if halves.size % 2 else halves
    low, high = (halves[1::2], halves[0::2]) if swapped else (halves[0::2], halves[1::2])
    return (low | high << 4).astype(np.uint8)


def _magnitude(codes: np.ndarray) -> np.ndarray:
    flat = codes.ravel().astype(np.int16)
    return (np.where(flat < 0, 8, 0) | np.abs(flat) & 7).astype(np.uint8)


# What is wrong, in words; its bytes; and where to look.
_MISTAKES: Sequence[tuple[str, Callable[[np.ndarray], np.ndarray], str]] = (
    ("The two codes of each byte are exchanged.", lambda codes: _joined(_halves(codes), swapped=True), _HALVES),
    ("The codes are stored plus 8, without a sign.", lambda codes: _joined((codes.ravel() + 8).astype(np.uint8)), _SIGN),
    ("The sign is a bit of its own, not two's complement.", lambda codes: _joined(_magnitude(codes)), _SIGN),
    ("Each code has a byte of its own.", _halves, "Two codes share a byte."),
    ("The last of an odd number of codes is missing.", lambda codes: _joined(_halves(codes.ravel()[: codes.size // 2 * 2])), _ODD),
    ("The codes are taken column by column.", lambda codes: _joined(_halves(codes.ravel("F"))), "Take the codes row by row: ravel()."),
)  # fmt: skip


def judged_pack(asked: Sequence[Question], found: Sequence[Answer]) -> Packing:
    """Compare the bytes of `pack` with the right ones."""
    wrong = [pair for pair in zip(asked, found, strict=True) if not _same(pair[0].packed, pair[1])]
    if not wrong:
        return Packing(len(asked), len(asked))
    said, hint = _described("pack", *wrong[0])
    for words, mistake, advice in _MISTAKES:
        if all(_equal(mistake(question.codes), answer) for question, answer in wrong):
            said, hint = f"{said} {words}", advice
            break
    return Packing(len(asked) - len(wrong), len(asked), said, hint)


def judged_unpack(asked: Sequence[Question], found: Sequence[Answer]) -> Packing:
    """Compare the codes of `unpack` with the right ones."""
    wrong = [pair for pair in zip(asked, found, strict=True) if not _same(pair[0].codes, pair[1])]
    if not wrong:
        return Packing(len(asked), len(asked))
    said, hint = _described("unpack", *wrong[0])
    if all(_equal(question.codes & 15, answer) for question, answer in wrong):
        said, hint = f"{said} The codes from 8 to 15 are negative ones.", _SIGN
    elif all(_equal(_exchanged(question.codes), answer) for question, answer in wrong if question.codes.size > 1):
        said, hint = f"{said} The two codes of each byte are exchanged.", _HALVES
    return Packing(len(asked) - len(wrong), len(asked), said, hint)


def _exchanged(codes: np.ndarray) -> np.ndarray:
    flat = codes.ravel()
    padded = np.append(flat, np.int8(0)) if flat.size % 2 else flat
    return padded.reshape(-1, 2)[:, ::-1].ravel()[: flat.size].reshape(codes.shape)


def _described(function: str, question: Question, answer: Answer) -> tuple[str, str]:
    if isinstance(answer, Unwritten):
        return f"{function} is still empty.", "Write its body in task 1 and run the cell, which writes packing.py."
    if isinstance(answer, str):
        return (
            f"{function} failed: {answer}.",
            "Call it in the notebook with an array of five codes: the same error appears there.",
        )
    want = question.packed if function == "pack" else question.codes
    if answer.shape != want.shape:
        return (
            f"{function} of {question.codes.size} codes returned the shape {answer.shape}, expected {want.shape}.",
            _ODD if function == "pack" else "The second argument is the shape of the codes.",
        )
    if answer.dtype != want.dtype and (answer == want).all():
        return (
            f"{function} of {question.codes.size} codes returned an array of {answer.dtype}, expected {want.dtype}.",
            f"The numbers are right. Convert them with `.astype(np.{want.dtype})` before you return them.",
        )
    place = int(np.flatnonzero(answer.ravel() != want.ravel())[0])
    return (
        f"{function} of {question.codes.size} codes: number {place} is {answer.ravel()[place]}, expected {want.ravel()[place]}.",
        f"{_HALVES} {_SIGN}",
    )


def _same(want: np.ndarray, found: Answer) -> bool:
    """Whether the numbers are equal, and their type, too."""
    return _equal(want, found) and not isinstance(found, str) and found.dtype == want.dtype


def _equal(want: np.ndarray, found: Answer) -> bool:
    return not isinstance(found, str) and found.shape == want.shape and bool((found == want).all())
