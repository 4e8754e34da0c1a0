"""Which tests `make quick` leaves out: those that took longer than half a second when they were last recorded.

    make durations      records them anew, into tests/long_tests.txt

A test that is not listed is quick until it is recorded otherwise, and one with the mark ``quick`` always is.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

LONG_S = 0.5
FILE = Path(__file__).with_name("long_tests.txt")


def function_of(nodeid: str) -> str:
    """A test's name without its parameters: all cases of one are recorded together."""
    return nodeid.partition("[")[0]


def read() -> set[str]:
    return {line.split()[1] for line in FILE.read_text(encoding="utf-8").splitlines()}


class Quick:
    """A plugin of pytest's that leaves the long tests out."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        long = read()
        left_out = [item for item in items if function_of(item.nodeid) in long and not item.get_closest_marker("quick")]
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


class Recorder:
    """A plugin that writes the list when all tests have run, setup of shared fixtures included."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[function_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        lines = [f"{seconds:6.1f}  {name}" for name, seconds in self.seconds.items() if seconds > LONG_S]
        FILE.write_text("\n".join(sorted(lines, reverse=True)) + "\n", encoding="utf-8")
