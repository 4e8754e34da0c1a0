"""Which tests `make quick` leaves out: those that took longer than half a second when they were last recorded.

    make durations      records them anew, into tests/long_tests.txt
    make durations ONLY=--quick     adds those that became long since: two minutes, where all tests take many

A fixture that several tests share is recorded under its own name, and a test is left out with each long fixture that it needs:
otherwise the seconds would move to whichever of them runs first. A test that is not listed is quick until it is recorded
otherwise, and one with the mark ``quick`` always is.
"""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

LONG_S = 0.5
LONG_FIXTURE_S = 2.0  # it is made once, and serves many tests
FILE = Path(__file__).with_name("long_tests.txt")


def function_of(nodeid: str) -> str:
    """A test's name without its parameters: all cases of one are recorded together."""
    return nodeid.partition("[")[0]


def fixture_of(definition: Any) -> str:
    """A fixture's name and where it applies: ``tests/labs/test_lab01.py::reference (fixture)``."""
    return f"{definition.baseid}::{definition.argname} (fixture)"


def read() -> dict[str, float]:
    """Seconds by name, as they were recorded."""
    rows = (line.split(maxsplit=1) for line in FILE.read_text(encoding="utf-8").splitlines())
    return {name: float(seconds) for seconds, name in rows}


class Quick:
    """A plugin of pytest's that leaves the long tests out."""

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        long = read()

        def left_out(item: Any) -> bool:
            used = [found[-1] for found in item._fixtureinfo.name2fixturedefs.values() if found]
            fixtures = [fixture_of(fixture) for fixture in used if not fixture._autouse]  # every test has those
            return function_of(item.nodeid) in long or any(long.get(name, 0) > LONG_FIXTURE_S for name in fixtures)

        gone = {item for item in items if left_out(item) and not item.get_closest_marker("quick")}
        config.hook.pytest_deselected(items=list(gone))
        items[:] = [item for item in items if item not in gone]


class FixtureClock:
    """A plugin that notes beside a test how long the shared fixtures took that were made for it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        started = time.perf_counter()
        made = yield
        if fixturedef.scope != "function":
            request._pyfuncitem.user_properties.append((fixture_of(fixturedef), time.perf_counter() - started))
        return made


class Recorder:
    """A plugin that writes the list when the tests have run; what is on it and did not run may stay.

    Args:
        kept: seconds by name, of tests that this run leaves out.
    """

    def __init__(self, kept: dict[str, float]) -> None:
        self.kept = kept
        self.seconds: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        own = report.duration
        for name, seconds in report.user_properties if report.when == "setup" else ():
            own -= float(seconds)
            self.seconds[name] = max(self.seconds[name], float(seconds))  # the other process may have made it, too
        self.seconds[function_of(report.nodeid)] += own

    def pytest_sessionfinish(self) -> None:
        found = {**self.kept, **{name: seconds for name, seconds in self.seconds.items() if seconds > LONG_S}}
        lines = [f"{seconds:6.1f}  {name}" for name, seconds in found.items()]
        FILE.write_text("\n".join(sorted(lines, reverse=True)) + "\n", encoding="utf-8")
