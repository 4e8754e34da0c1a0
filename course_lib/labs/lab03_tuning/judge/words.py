"""Words for findings: where two values differ, and a hint that fits an error."""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Any

_LONGEST, _BEFORE = 40, 8  # characters of a value, and those before a difference
# How a message about an error begins, so that no word that a learner's code writes into an error decides.
_ERRORS = {
    r"(\w+ failed: )?(line \d+: )?ImportError the file may import ": (
        "Use only numpy and Python's standard library. The grader has no other package, even if your notebook has it."
    ),
    r"(line \d+: )?OSError \[Errno 18\] ": "`os.replace` works within one file system. In which folder must the second file be?",
    r"(\w+ failed: )?it defines no function ": "Requirement 1 names the functions. Define each of them at the top level of the file.",
}


def hint_after(error: str, usual: str) -> str:
    """The hint for an error of a learner's file: `usual`, or the one for an error that the notebook's cells do not show."""
    return next((hint for begin, hint in _ERRORS.items() if re.match(begin, error)), usual)


def first_difference(name: str, found: Any, expected: Any) -> str:
    """The first place where two plain values differ, such as "shapes[1][0] is 5 instead of 6". The values are not equal."""
    if isinstance(found, dict) and isinstance(expected, dict):
        more, less = ([one for one in here if one not in other] for here, other in ((found, expected), (expected, found)))
        if more or less:
            parts = [more and f"has {_shown(more[0])}", less and f"{'' if more else 'does not have '}{_shown(less[0])}"]
            return f"{name} {' instead of '.join(part for part in parts if part)}"
        return next(
            first_difference(f"{name}[{_shown(key)}]", found[key], expected[key])
            for key in found
            if found[key] != expected[key]
        )
    if isinstance(found, list) and isinstance(expected, list):
        if len(found) != len(expected):
            return f"{name} has {len(found)} parts instead of {len(expected)}"
        place = next(place for place, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)
        return first_difference(f"{name}[{place}]", found[place], expected[place])
    texts = isinstance(found, str) and isinstance(expected, str)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(found, expected, strict=False))) if texts else 0
    first = same - _BEFORE if same > _LONGEST - _BEFORE else 0  # two long texts are shown where they differ
    return f"{name} is {_shown(found, first)} instead of {_shown(expected, first)}"


def _shown(value: Any, first: int = 0) -> str:
    text = repr(f"...{value[first:]}" if first else value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
