"""Errors that a user reads: one line, with what went wrong in it."""

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def one_line(kind: type[Exception], *words: str, longest: int = 1000) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """An error of exactly this class, on one line that is not too long, with all of these words in it."""
    with pytest.raises(kind) as raised:
        yield raised
    message = str(raised.value)
    assert type(raised.value) is kind and len(message.splitlines()) == 1 and len(message) < longest
    assert [word for word in words if word not in message] == [], message
