"""Cases of one kind, of which the first few run in every test run and the others in `make slow-test`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def after(fast: int, cases: Iterable[Any]) -> list[Any]:
    """The cases for `pytest.mark.parametrize`; those after the first `fast` are slow. A tuple is the values of several parameters."""
    cases = list(cases)
    slow = (one if isinstance(one, tuple) else (one,) for one in cases[fast:])
    return [*cases[:fast], *(pytest.param(*one, marks=pytest.mark.slow) for one in slow)]
