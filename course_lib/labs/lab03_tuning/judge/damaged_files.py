"""Damaged files of a cache: parts of a file, values that are not a dictionary, and dictionaries with an entry that is not a pair."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from course_lib.labs.lab03_tuning.judge.cache_entries import drawn_entries, drawn_ms, drawn_texts

_WrongEntry = Callable[[str, float], Any]  # of the tactic and the ms of a right entry


def damaged_contents(rng: np.random.Generator, content: str) -> Iterator[tuple[str, bytes | str]]:
    """What a damaged file holds, as bytes or in base64, by the kind of damage.

    Args:
        content: a whole file, in base64.
    """
    # Within the first half, because the last part of a database can hold an index without which all entries are still there.
    yield "cut off", content[: 4 * int(rng.integers(1, max(2, len(content) // 8)))]
    # No text begins like this, nor does anything that pickle reads.
    yield "no text", bytes([rng.integers(0xF8, 0x100)]) + rng.bytes(int(rng.integers(20, 200)))
    text, numbers = drawn_texts(rng, 1)[0], rng.integers(0, 1 << 20, int(rng.integers(1, 9))).tolist()
    others = {"null": None, "true": True, "false": False, "a list": numbers, "an object": {text: drawn_ms(rng)}}
    for what, plain in {**others, "a number": drawn_ms(rng), "a text": text}.items():
        if what != "an object":
            yield f"{what} instead of a dictionary", json.dumps(plain).encode()
    for what, wrong_entry in _wrong_entries(others).items():
        entries = drawn_entries(rng, int(rng.integers(5, 40)))
        place = str(rng.choice(list(entries)))
        for which, keys in (("each entry", [*entries]), ("one entry", [place])):
            wrong = {key: wrong_entry(*entries[key]) for key in keys}
            yield f"{which}: {what}", json.dumps(entries | wrong).encode()


def _wrong_entries(others: Mapping[str, Any]) -> dict[str, _WrongEntry]:
    """What takes the place of an entry, by its description.

    Args:
        others: neither texts nor numbers, by their names.
    """
    found: dict[str, _WrongEntry] = {
        "one part": lambda tactic, ms: [tactic],
        "three parts": lambda tactic, ms: [tactic, ms, ms],
        "ms before the tactic": lambda tactic, ms: [ms, tactic],
        "a number": lambda tactic, ms: ms,
        "a text of two": lambda tactic, ms: tactic[:2],
        "an object of two": lambda tactic, ms: {tactic: ms, "ms": ms},
        "a number as tactic": lambda tactic, ms: [ms, ms],
        "a text as time": lambda tactic, ms: [tactic, str(ms)],
    }
    for what, other in others.items():
        found |= _wrong_entries_with(what, other)
    return found


def _wrong_entries_with(what: str, other: Any) -> dict[str, _WrongEntry]:
    return {
        what: lambda tactic, ms: other,
        f"{what} as tactic": lambda tactic, ms: [other, ms],
        f"{what} as time": lambda tactic, ms: [tactic, other],
    }
