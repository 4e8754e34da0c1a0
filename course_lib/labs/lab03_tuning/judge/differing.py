"""Two problems that differ: layers, or machines, that a key must tell apart because their times may differ.

A value is changed on each of its levels. A leaf is replaced, parts come in another order, and one part is added or missing. Between
neighbors, a part or a digit moves to the other one. A key that looks at a value in another way than as a whole makes some of these equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, permutations
from typing import Any

import numpy as np

Layer = dict[str, Any]
Machine = dict[str, str]
Change = Callable[[Any], Iterator[Any]]
# The fields that a time depends on.
OF_LAYER = ("operator", "shapes", "types", "attributes")
OF_MACHINE = ("device", "driver", "tensorrt")
OPERATORS = ("Conv", "ConvTranspose", "MatMul", "MaxPool")
TYPES = ("FP16", "BF16", "FP32", "INT8")
MOST = 1 << 16  # the largest dimension
# A drawn layer does not have any of these. All precede "kernel" in the alphabet, so that sorted values can stay the same.
_ATTRIBUTES = ("axes", "dilation", "group")
_LETTERS = "ABDHLTV"
_VERSION = re.compile(r"[1-9]\d*(\.(0|[1-9]\d*))*")


def number(rng: np.random.Generator) -> int:
    """A dimension. Small ones are as frequent as large ones."""
    return int(MOST ** rng.random())


def other_leaves(value: Any, rng: np.random.Generator) -> Iterator[Any]:
    """The value with one number or name replaced, in several ways for each of them."""

    def replaced(part: Any) -> Iterator[Any]:
        if isinstance(part, int):
            yield from _other_numbers(part, rng)
        elif isinstance(part, str):
            yield from (name for name in (OPERATORS if part in OPERATORS else TYPES) if name != part)

    return _on_each_level(value, replaced)


def other_layers(layer: Layer, rng: np.random.Generator) -> list[Layer]:
    """Layers that differ from this one in what a time depends on."""
    timed = {name: layer[name] for name in OF_LAYER}
    found = list(other_leaves(timed, rng))
    for field in ("shapes", "types", "attributes"):
        for change in (_other_orders, lambda part: _one_more_or_less(part, rng), _moved):
            found += [timed | {field: value} for value in _on_each_level(timed[field], change)]
    found += _regrouped(timed, rng)
    # Inputs change places with all that belongs to them, and so do the last two dimensions.
    found.append(timed | {"shapes": timed["shapes"][::-1], "types": timed["types"][::-1]})
    shapes = [[*shape[:-2], shape[-1], shape[-2]] for shape in timed["shapes"]]
    found.append(timed | {"shapes": shapes, "attributes": {name: row[::-1] for name, row in timed["attributes"].items()}})
    return [layer | other for other in found if other != timed]


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


def _other_numbers(one: int, rng: np.random.Generator) -> Iterator[int]:
    """The next number, one with the same low bits, one with the same last digits, and any number."""
    yield one + 1
    bit = 1 << int(rng.integers(8, 16))
    yield one ^ bit if one != bit else one + bit
    yield one + 10 ** int(rng.integers(1, 5))
    yield one + number(rng)


def _other_orders(value: Any) -> Iterator[Any]:
    """All orders of the parts of a list, or of the values under the names of a dictionary."""
    if isinstance(value, list):
        yield from (list(parts) for parts in permutations(value) if list(parts) != value)
    elif isinstance(value, dict):
        yield from (dict(zip(value, parts, strict=True)) for parts in permutations(value.values()))


def _one_more_or_less(value: Any, rng: np.random.Generator) -> Iterator[Any]:
    if isinstance(value, list):
        yield from ([*value, value[-1]], [value[0], *value], value[:-1], value[1:])
        if isinstance(value[0], int):
            yield from ([1, *value], [*value, 1])
    elif isinstance(value, dict):
        yield value | {"dilation": [number(rng), number(rng)]}
        for name in value:
            yield {other: value[other] for other in value if other != name}
            new = str(rng.choice(_ATTRIBUTES))
            yield {new if other == name else other: value[other] for other in value}


def _moved(value: Any) -> Iterator[Any]:
    """The last number of a list becomes the first one of the next list, or the other way round."""
    for one, two in pairwise(_places(value)):
        if isinstance(value[one], list) and isinstance(value[two], list):
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
        for other in _other_numbers(int(digits[0]), rng):
            yield f"{text[: digits.start()]}{other}{text[digits.end() :]}"
    for place, (one, two) in enumerate(pairwise(text)):
        if one != two:
            yield f"{text[:place]}{two}{one}{text[place + 2 :]}"
    for word in re.finditer(r"[A-Za-z]+", text):
        yield text[: word.start()] + text[word.end() :]
        place = int(rng.integers(word.start(), word.end()))
        yield text[:place] + str(rng.choice([one for one in _LETTERS if one != text[place]])) + text[place + 1 :]
        yield f"{text[: word.end()]}{'e' if text[word.start()].isupper() else 'E'}{text[word.end() :]}"
    yield f"{text} {rng.choice(('PCIe', 'SXM', 'NVL'))}"
    yield f"{text}{rng.choice(list(_LETTERS))}"
