"""The process that calls a learner's functions: source text and arrays in, arrays out.

It is started as text, by `isolation.text_command`, in a sandbox without the course. It has only numpy and Python's own modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, answered, decoded, encoded, numbers, run

PACKING, SCALES = "packing.py", "scales.py"


def answers(request: dict[str, Any]) -> dict[str, Any]:
    """See `learner_code.answered`. A question is a list of arguments: arrays as `encoded`, and plain values."""
    return answered(request, dict.fromkeys(request["questions"], _called))


def _called(function: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
    found = function(*map(_argument, arguments))
    return encoded(numbers(np.frombuffer(found, np.uint8) if isinstance(found, (bytes, bytearray)) else found))


def _argument(value: Any) -> Any:
    if isinstance(value, dict):
        return decoded(value)
    return tuple(value) if isinstance(value, list) else value


def main() -> None:
    """Answer one request."""
    run(answers, OnlyPackages("numpy"))
