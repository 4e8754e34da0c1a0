"""Runs a learner's `serve` with a decoder that says what a script holds, and records its calls. It travels as text: numpy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.labs.framework.learner_code import OnlyPackages, answered, run

LENGTH, MOST_NEW = 256, 128  # as in `given`
_MOST_CALLS = 2000


class Script:
    """A decoder for one request: after the prompt it says the script's bytes, one after the other; before, other bytes.

    Attributes:
        calls: position and tokens of each call.
    """

    def __init__(self, script: Sequence[int], first: int) -> None:
        """The byte after position `first` is the first of the script."""
        self.script, self.first = script, first
        self.calls: list[tuple[int, list[int]]] = []

    def step(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """The scores of the next token, float32 ``(256,)``."""
        fed, position = [int(token) for token in tokens], int(position)
        if not 1 <= len(fed) <= MOST_NEW:
            raise ValueError(f"a call has {len(fed)} tokens, expected 1 to {MOST_NEW}")
        if position % LENGTH + len(fed) > LENGTH:
            raise ValueError(f"a call of {len(fed)} tokens at position {position} goes beyond the last slot, {LENGTH - 1}")
        if len(self.calls) == _MOST_CALLS:
            raise ValueError(f"more than {_MOST_CALLS} calls for one request")
        self.calls.append((position, fed))
        said = position + len(fed) - self.first
        scores = np.linspace(-1, 0, 256, dtype=np.float32)
        scores[self.script[said] if 0 <= said < len(self.script) else 63] = 5.0
        return scores


def served(serve: Callable[..., Any], question: Sequence[Any]) -> dict[str, Any]:
    """The answer and the calls of one request: prompt, largest number of new bytes, position, and the script."""
    prompt, count, position, script = question
    decoder = Script(script, position + len(prompt))
    answer = serve(decoder.step, bytes(prompt), count, position)
    return {"answer": list(bytes(answer)), "calls": decoder.calls}


def main() -> None:
    """Entry point of the process."""
    run(lambda request: answered(request, {"serve": served}), OnlyPackages("numpy"))
