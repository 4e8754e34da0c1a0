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


Mistake = tuple[str, Callable[[np.ndarray], np.ndarray], str]  # in words; what it makes of codes; where to look

_HALVES = (
    "The first of two codes is in the low four bits of a byte. Print hex(...) of the byte for the codes 1 and 2: it is 0x21."
)
_SIGN = (
    "A code is four bits in two's complement: -1 is 1111, and -8 is 1000. Which operation keeps the low four bits of an int8?"
)
_ODD = "If the number of codes is odd, the last byte has one code and four bits of zero."
_APPENDED = "`np.append` of a uint8 array and the Python number 0 makes int64. Append `np.uint8(0)`."
_TWO = "Two codes share a byte, so n codes need (n + 1) // 2 bytes along one axis."
_NEIGHBORS = "Two neighbors share a byte. Print the bytes of the codes 1, 2, 3, 4: they are 0x21 and 0x43."
_WIDE = (
    "`.view(np.uint8)` shows each byte of a number, so the codes must be int8 there. `np.append` of int8 codes and the Python number 0 "
    "makes int64."
)
_BY_HAND = (
    "Pack and unpack five codes that you can check by hand. Look at the order of the codes, at the halves of a byte, at negative codes, "
    "and at the last byte."
)


def _halves(codes: np.ndarray) -> np.ndarray:
    return codes.ravel().astype(np.uint8) & 15


def _joined(halves: np.ndarray, *, swapped: bool = False) -> np.ndarray:
    halves = np.append(halves, np.uint8(0)) if halves.size % 2 else halves
    low, high = (halves[1::2], halves[0::2]) if swapped else (halves[0::2], halves[1::2])
    return (low | high << 4).astype(np.uint8)


def _apart(codes: np.ndarray) -> np.ndarray:
    """The first half of the codes in the low four bits, and the second half in the high ones."""
    halves = _halves(codes)
    halves = np.append(halves, np.uint8(0)) if halves.size % 2 else halves
    return halves[: halves.size // 2] | halves[halves.size // 2 :] << 4


def _unmasked(codes: np.ndarray) -> np.ndarray:
    """A negative first code has ones in the high four bits, too."""
    flat = np.append(codes.ravel(), np.int8(0)) if codes.size % 2 else codes.ravel()
    return flat[0::2].view(np.uint8) | flat[1::2].view(np.uint8) << 4


def _zero_first(codes: np.ndarray) -> np.ndarray:
    return _joined(np.insert(_halves(codes), 0, np.uint8(0)) if codes.size % 2 else _halves(codes))


def _magnitude(codes: np.ndarray) -> np.ndarray:
    flat = codes.ravel().astype(np.int16)
    return (np.where(flat < 0, 8, 0) | np.abs(flat) & 7).astype(np.uint8)


# Mistakes of `pack`.
_MISTAKES: Sequence[Mistake] = (
    ("The two codes of each byte are exchanged.", lambda codes: _joined(_halves(codes), swapped=True), _HALVES),
    ("The codes are stored plus 8, without a sign.", lambda codes: _joined((codes.ravel() + 8).astype(np.uint8)), _SIGN),
    ("The sign is a bit of its own, not two's complement.", lambda codes: _joined(_magnitude(codes)), _SIGN),
    ("Each code has a byte of its own.", _halves, "Two codes share a byte."),
    ("Each code has a byte of its own.", lambda codes: codes.view(np.uint8).ravel(), "Two codes share a byte."),
    ("The two halves of the array share the bytes, not two neighbors.", _apart, _NEIGHBORS),
    ("A negative first code sets all high bits of its byte.", _unmasked, _SIGN),
    ("The zero is before the first of an odd number of codes.", _zero_first, _ODD),
    ("The last of an odd number of codes is missing.", lambda codes: _joined(_halves(codes.ravel()[: codes.size // 2 * 2])), _ODD),
    ("The codes are taken column by column.", lambda codes: _joined(_halves(codes.ravel("F"))), "Take the codes row by row: ravel()."),
)  # fmt: skip


def judged_pack(asked: Sequence[Question], found: Sequence[Answer]) -> Packing:
    """Compare the bytes of `pack` with the right ones."""
    wrong = [pair for pair in zip(asked, found, strict=True) if not _same(pair[0].packed, pair[1])]
    if not wrong:
        return Packing(len(asked), len(asked))
    return Packing(len(asked) - len(wrong), len(asked), *_described("pack", wrong, _MISTAKES))


def judged_unpack(asked: Sequence[Question], found: Sequence[Answer]) -> Packing:
    """Compare the codes of `unpack` with the right ones."""
    wrong = [pair for pair in zip(asked, found, strict=True) if not _same(pair[0].codes, pair[1])]
    if not wrong:
        return Packing(len(asked), len(asked))
    return Packing(len(asked) - len(wrong), len(asked), *_described("unpack", wrong, _MISTAKES_OF_UNPACK))


def _padded(codes: np.ndarray) -> np.ndarray:
    flat = codes.ravel()
    return np.append(flat, np.int8(0)) if flat.size % 2 else flat


def _low_halves_first(codes: np.ndarray) -> np.ndarray:
    padded = _padded(codes)
    return np.concatenate([padded[0::2], padded[1::2]])[: codes.size].reshape(codes.shape)


def _exchanged(codes: np.ndarray) -> np.ndarray:
    return _padded(codes).reshape(-1, 2)[:, ::-1].ravel()[: codes.size].reshape(codes.shape)


_MISTAKES_OF_UNPACK: Sequence[Mistake] = (
    ("The codes from 8 to 15 are negative ones.", lambda codes: codes & 15, _SIGN),
    ("The two codes of each byte are exchanged.", _exchanged, _HALVES),
    ("All low halves come first, and then all high halves.", _low_halves_first, _NEIGHBORS),
    ("Eight is subtracted from each code.", lambda codes: (codes & 15) - 8, _SIGN),
    ("The codes are laid out column by column.",
     lambda codes: codes.ravel().reshape(codes.shape, order="F"), "Lay the codes out row by row: reshape(shape)."),
)  # fmt: skip


def _described(function: str, wrong: Sequence[tuple[Question, Answer]], mistakes: Sequence[Mistake]) -> tuple[str, str]:
    """What is wrong with the answers of a function, and where to look: the type comes before shape and numbers.

    A mistake is named if it explains all answers that are wrong.
    """
    answers: list[tuple[Question, np.ndarray, np.ndarray]] = []
    for question, answer in wrong:
        if isinstance(answer, Unwritten):
            return f"{function} is still empty.", "Write its body in task 1 and run the cell, which writes packing.py."
        if isinstance(answer, str):
            hint = "Call it in the notebook with an array of five codes: the same error appears there."
            return f"{function} failed: {answer}.", hint
        answers.append((question, question.packed if function == "pack" else question.codes, answer))
    said, hints = "", []
    typed = [one for one in answers if one[1].dtype != one[2].dtype]
    other = [one for one in answers if not _equal(one[1], _converted(one[2], one[1].dtype))]
    if typed:
        question, want, answer = typed[0]
        said = f"{function} of {question.codes.size} codes returned an array of {answer.dtype}, expected {want.dtype}."
        odd = function == "pack" and all(question.codes.size % 2 for question, _, _ in typed)
        hints.append(_APPENDED if odd else f"Convert the numbers with `.astype(np.{want.dtype})` before you return them.")
        if not other:
            return said, f"Only the type is wrong. {hints[0]}"
    question, want, answer = other[0]
    difference, hint = _difference(function, question, want, answer)
    for words, mistake, advice in mistakes:
        if all(_equal(mistake(one.codes), given) for one, _, given in other if one.codes.size > 1 or len(other) == 1):
            difference, hint = f"{difference} {words}", advice
            break
    return f"{said} {difference}".strip(), " ".join([*hints, hint])


def _difference(function: str, question: Question, want: np.ndarray, answer: np.ndarray) -> tuple[str, str]:
    """The shape of an answer, or its first wrong number."""
    size = question.codes.size
    if answer.shape != want.shape:
        said = f"{function} of {size} codes returned the shape {answer.shape}, expected {want.shape}."
        if function == "unpack":
            return said, "The second argument is the shape of the codes."
        if answer.size in (4 * want.size, 8 * want.size):
            return said, _WIDE
        return said, "The bytes lie along one axis." if answer.size == want.size else _ODD if answer.size == size // 2 else _TWO
    place = int(np.flatnonzero(answer.ravel() != want.ravel())[0])
    said = f"{function} of {size} codes: number {place} is {answer.ravel()[place]}, expected {want.ravel()[place]}."
    last = function == "pack" and size % 2 and place == want.size - 1
    return said, _ODD if last else _BY_HAND


def _converted(answer: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Integers of another type as they are in this type, which keeps their low bits."""
    return answer.astype(dtype) if answer.dtype.kind in "iu" else answer


def _same(want: np.ndarray, found: Answer) -> bool:
    """Whether the numbers are equal, and their type, too."""
    return _equal(want, found) and not isinstance(found, str) and found.dtype == want.dtype


def _equal(want: np.ndarray, found: Answer) -> bool:
    return not isinstance(found, str) and found.shape == want.shape and bool((found == want).all())
