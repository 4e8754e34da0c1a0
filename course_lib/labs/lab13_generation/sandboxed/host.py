"""Runs a learner's `serve` with a decoder that says what a script holds, and compares its calls. It travels as text: numpy only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.labs.framework.learner_code import OnlyPackages, answered, run

LENGTH, MOST_NEW = 256, 128  # as in `given`


class Script:
    """A decoder for one request: after the prompt it says the script's bytes, one after the other; before, other bytes.

    Attributes:
        calls: number of calls.
    """

    def __init__(self, prompt: Sequence[int], script: Sequence[int], position: int) -> None:
        self._text, self._prompt, self._first = [*prompt, *script], len(prompt), position
        self._fed = self.calls = 0

    def step(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """The scores of the next token, float32 ``(256,)``."""
        tokens, position, expected = [int(token) for token in tokens], int(position), self._first + self._fed
        self.calls += 1
        if not 1 <= len(tokens) <= MOST_NEW:
            raise ValueError(f"a call has {len(tokens)} tokens, expected 1 to {MOST_NEW}")
        if position % LENGTH + len(tokens) > LENGTH:
            raise ValueError(f"a call of {len(tokens)} tokens at position {position} goes beyond the last slot, {LENGTH - 1}")
        if position != expected:
            raise ValueError(f"call {self.calls} is at position {position}, and {expected} tokens are before it")
        if tokens != self._text[self._fed : self._fed + len(tokens)]:
            after = self._fed >= self._prompt
            wrong = "a call after the prompt feeds another byte than the one that was chosen"
            raise ValueError(wrong if after else "the calls do not feed the prompt")
        self._fed += len(tokens)
        scores = np.linspace(-1, 0, 256, dtype=np.float32)
        scores[self._text[self._fed] if self._prompt <= self._fed < len(self._text) else 63] = 5.0
        return scores


def served(serve: Callable[..., Any], question: Sequence[Any]) -> dict[str, Any]:
    """The answer and the number of calls of one request: prompt, largest number of new bytes, position, and the script."""
    prompt, count, position, script = question
    decoder = Script(prompt, script, position)
    answer = serve(decoder.step, bytes(prompt), count, position)
    return {"answer": list(bytes(answer)), "calls": decoder.calls}


def main() -> None:
    """Entry point of the process."""
    run(lambda request: answered(request, {"serve": served}), OnlyPackages("numpy"))
