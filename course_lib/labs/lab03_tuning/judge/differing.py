"""Two problems that differ: layers, or machines, that a key must tell apart because their times may differ.

A value is changed on each of its levels. A leaf is replaced, parts come in another order, and one part is added or missing. Between
neighbors, a part or a digit moves to the other one. A key that looks at a value in another way than as a whole makes some of these equal.
A wide layer has more changes than a judge can ask for, so a few of each kind are drawn, in each field.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import numpy as np

Layer = dict[str, Any]
Machine = dict[str, str]
Change = Callable[[Any], Iterator[Any]]
# The fields that a time depends on.
OF_LAYER = ("operator", "shapes", "types", "attributes")
OF_MACHINE = ("device", "driver", "tensorrt")
# What the task allows: numbers below a limit, lists of at most so many parts, and names of at most so many characters.
LIMIT, MOST_INPUTS, MOST_NUMBERS, MOST_ATTRIBUTES, MOST_CHARACTERS = 1 << 31, 6, 8, 6, 24
_CHARACTERS = string.ascii_letters + string.digits + "_"
_OF_A_KIND = 3  # changes of one kind in one field of a layer
LETTERS = "ABDHLTV"  # of the names of GPUs
_VERSION = re.compile(r"[1-9]\d*(\.(0|[1-9]\d*))*")


def number(rng: np.random.Generator) -> int:
    """A dimension. Those from 0 to 3 are frequent, and among the others, small ones are as frequent as large ones."""
    return int(rng.integers(4)) if rng.random() < 0.25 else int((LIMIT >> 1) ** rng.random())


def word(rng: np.random.Generator) -> str:
    """The name of an operator, a type or an attribute."""
    return "".join(rng.choice(list(_CHARACTERS), rng.integers(1, MOST_CHARACTERS + 1)))


def tactics(rng: np.random.Generator, count: int) -> list[str]:
    """Different names of tactics with a common beginning of any length. One can be the beginning of another one."""
    begin = f"tactic_{rng.bytes(100).hex()[: rng.integers(201)]}"
    found: dict[str, None] = {}
    while len(found) < count:
        found[begin + rng.bytes(4).hex()[: rng.choice((0, 4, 8))]] = None
    return list(found)


def other_values(value: Any, rng: np.random.Generator) -> list[list[Any]]:
    """What a field of a layer can be changed to, by the kind of the change."""
    kinds: list[Change] = [partial(_one_other_number, other=other, rng=rng) for other in _OTHER_NUMBERS]
    kinds += [partial(_other_order, order=order, rng=rng) for order in (_turned, _exchanged, _shuffled)]
    kinds += [partial(_other_word, rng=rng), partial(_one_more_or_less, rng=rng), _moved]
    return [[other for other in _on_each_level(value, change) if other != value] for change in kinds]


def other_layers(layer: Layer, rng: np.random.Generator) -> list[Layer]:
    """Layers that differ from this one in what a time depends on: a few for each kind of change in each field."""
    timed = {name: layer[name] for name in OF_LAYER}
    kinds = [[timed | {field: other} for other in found] for field in OF_LAYER for found in other_values(timed[field], rng)]
    kinds.append(list(_regrouped(timed, rng)))
    # Whole inputs change places, or one is added or missing, and the last two dimensions change places.
    inputs = range(len(timed["shapes"]))
    orders = (inputs[::-1], rng.permutation(inputs), inputs[1:], inputs[:-1], [*inputs, inputs[-1]])
    kinds += [[timed | {field: [timed[field][place] for place in order] for field in ("shapes", "types")}] for order in orders]
    shapes = [[*shape[:-2], *shape[:-3:-1]] for shape in timed["shapes"]]
    kinds.append([timed | {"shapes": shapes, "attributes": {name: row[::-1] for name, row in timed["attributes"].items()}}])
    kinds = [[other for other in found if is_allowed(other)] for found in kinds]
    drawn = [found[place] for found in kinds for place in rng.permutation(len(found))[:_OF_A_KIND]]
    return [layer | other for other in drawn if other != timed]


def is_allowed(layer: Layer) -> bool:
    """Whether a layer is one of those that the task describes."""
    shapes, rows = layer["shapes"], list(layer["attributes"].values())
    return (
        1 <= len(shapes) == len(layer["types"]) <= MOST_INPUTS
        and len(rows) <= MOST_ATTRIBUTES
        and all(len(row) <= MOST_NUMBERS for row in shapes + rows)
        and all(rows)
        and all(one < LIMIT for one in _numbers([shapes, rows]))
    )


def other_machines(machine: Machine, rng: np.random.Generator) -> list[Machine]:
    """Machines with another GPU or another version. Versions stay numbers with points between them."""
    found = [machine | {field: text} for field in OF_MACHINE for text in _other_texts(machine[field], rng)]
    # A digit, or a number, moves from the end of a text to the beginning of another one.
    for one, two in permutations(OF_MACHINE, 2):
        for end in (r"\d$", r"\.?\d+$"):
            if last := re.search(end, machine[one]):
                joint = "." if last[0].startswith(".") else ""
                moved = last[0].removeprefix(".") + joint + machine[two]
                found.append(machine | {one: machine[one][: last.start()], two: moved})
    versions = ("driver", "tensorrt")
    return [one for one in found if one != machine and all(_VERSION.fullmatch(one[field]) for field in versions)]


def _on_each_level(value: Any, change: Change) -> Iterator[Any]:
    """The value with one change: of the whole, or of any part of it."""
    yield from change(value)
    for place in _places(value):
        for part in _on_each_level(value[place], change):
            yield _with(value, place, part)


def _places(value: Any) -> Sequence[Any]:
    return range(len(value)) if isinstance(value, list) else sorted(value) if isinstance(value, dict) else ()


def _with(value: Any, place: Any, part: Any) -> Any:
    return value | {place: part} if isinstance(value, dict) else [*value[:place], part, *value[place + 1 :]]


def _other_small(one: int, rng: np.random.Generator) -> int:
    return 1 - one if one in (0, 1) else int(rng.integers(2))


def _other_bit(one: int, rng: np.random.Generator) -> int:
    """A number with the same low bits."""
    return one ^ 1 << int(rng.integers(8, 30))


def _other_digit(one: int, rng: np.random.Generator) -> int:
    """A number with the same last digits."""
    return one + 10 ** int(rng.integers(1, 9))


# The next number, 0 or 1, one with the same low bits, one with the same last digits, and any number.
_OTHER_NUMBERS: Sequence[Callable[[int, np.random.Generator], int]] = (
    lambda one, rng: one + 1,
    _other_small,
    _other_bit,
    _other_digit,
    lambda one, rng: one + number(rng),
)
# The same for the numbers of names and versions, which a finding shows to the learner: none is longer than a real one.
_OTHER_IN_TEXT: Sequence[Callable[[int, np.random.Generator], int]] = (
    lambda one, rng: one + 1,
    _other_small,
    lambda one, rng: one ^ 1 << int(rng.integers(8, 12)),
    lambda one, rng: one + 10 ** int(rng.integers(1, 4)),
    lambda one, rng: one + int(rng.integers(1, 1000)),
)


def _one_other_number(value: Any, other: Callable[[int, np.random.Generator], int], rng: np.random.Generator) -> Iterator[int]:
    if isinstance(value, int):
        yield other(value, rng)


def _other_word(value: Any, rng: np.random.Generator) -> Iterator[Any]:
    """A word, or one name of a dictionary, with one character replaced, in the other case, added or missing, or with two exchanged."""
    if isinstance(value, str):
        place, (letter,) = int(rng.integers(len(value))), rng.choice(list(_CHARACTERS), 1)
        begin, here, end = value[:place], value[place], value[place + 1 :]
        others = [f"{begin}{letter}{end}", f"{begin}{letter}{here}{end}", f"{begin}{here}{letter}{end}"]
        others += [f"{begin}{here.swapcase()}{end}", f"{begin}{end}", f"{begin}{end[:1]}{here}{end[1:]}"]
        yield from (other for other in others if 0 < len(other) <= MOST_CHARACTERS)
    elif isinstance(value, dict):
        for name in value:
            for new in _other_word(name, rng):
                if new not in value:
                    yield {new if other == name else other: row for other, row in value.items()}


def _turned(count: int, rng: np.random.Generator) -> list[int]:
    first = int(rng.integers(1, count))
    return [*range(first, count), *range(first)]


def _exchanged(count: int, rng: np.random.Generator) -> list[int]:
    second = int(rng.integers(1, count))
    return [*range(second - 1), second, second - 1, *range(second + 1, count)]


def _shuffled(count: int, rng: np.random.Generator) -> list[int]:
    return [int(place) for place in rng.permutation(count)]


def _other_order(value: Any, order: Callable[[int, np.random.Generator], list[int]], rng: np.random.Generator) -> Iterator[Any]:
    """The parts of a list, or the values under the names of a dictionary, in another order."""
    if isinstance(value, (list, dict)) and len(value) > 1:
        parts = list(value.values()) if isinstance(value, dict) else value
        ordered = [parts[place] for place in order(len(parts), rng)]
        yield dict(zip(value, ordered, strict=True)) if isinstance(value, dict) else ordered


def _one_more_or_less(value: Any, rng: np.random.Generator) -> Iterator[Any]:
    if isinstance(value, list) and value:
        yield from ([*value, value[-1]], [value[0], *value], value[:-1], value[1:])
        if isinstance(value[0], int):
            yield from ([*value, 0], [0, *value], [1, *value], [*value, 1])
    elif isinstance(value, dict):
        yield value | {word(rng): [number(rng), number(rng)]}
        for name in value:
            yield {other: value[other] for other in value if other != name}


def _moved(value: Any) -> Iterator[Any]:
    """The last number of a list becomes the first one of the next list, or the other way round."""
    for one, two in pairwise(_places(value)):
        if all(isinstance(value[place], list) and value[place] for place in (one, two)):
            yield _with(_with(value, one, value[one][:-1]), two, [value[one][-1], *value[two]])
            yield _with(_with(value, one, [*value[one], value[two][0]]), two, value[two][1:])


def _regrouped(value: Any, rng: np.random.Generator) -> Iterator[Any]:
    """The same digits in other numbers, for each two neighbors, also in two lists: 1, 23 for 12, 3."""
    numbers = list(_numbers(value))
    for place, (one, two) in enumerate(pairwise(numbers)):
        digits = f"{one}{two}"
        if cuts := [cut for cut in range(1, len(digits)) if cut != len(str(one)) and digits[cut] != "0"]:
            cut = int(rng.choice(cuts))
            yield _filled(value, iter([*numbers[:place], int(digits[:cut]), int(digits[cut:]), *numbers[place + 2 :]]))


def _numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _numbers(part)


def _filled(value: Any, numbers: Iterator[int]) -> Any:
    """The same lists and dictionaries with other numbers."""
    if isinstance(value, dict):
        return {name: _filled(part, numbers) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(part, numbers) for part in value]
    return next(numbers) if isinstance(value, int) else value


def _other_texts(text: str, rng: np.random.Generator) -> Iterator[str]:
    """The text with another number, letter or word, with two neighboring characters exchanged, and with a letter more."""
    for digits in re.finditer(r"\d+", text):
        for other in _OTHER_IN_TEXT:
            yield f"{text[: digits.start()]}{other(int(digits[0]), rng)}{text[digits.end() :]}"
    for place, (one, two) in enumerate(pairwise(text)):
        if one != two:
            yield f"{text[:place]}{two}{one}{text[place + 2 :]}"
    for letters in re.finditer(r"[A-Za-z]+", text):
        yield text[: letters.start()] + text[letters.end() :]
        place = int(rng.integers(letters.start(), letters.end()))
        yield text[:place] + str(rng.choice([one for one in LETTERS if one != text[place]])) + text[place + 1 :]
        yield f"{text[: letters.end()]}{'e' if text[letters.start()].isupper() else 'E'}{text[letters.end() :]}"
    yield f"{text} {rng.choice(('PCIe', 'SXM', 'NVL'))}"
    yield f"{text}{rng.choice(list(LETTERS))}"
