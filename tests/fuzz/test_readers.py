"""Hostile inputs for every reader of the judge: none crashes, hangs or takes memory without bound. 100,000 cases: `make slow-test`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.planted import FOUND
from tests.fuzz.readers import readers

FEW, MANY = 200, 6000  # cases of one reader; there are 24


def output(module: str, *arguments: str) -> dict[str, Any]:
    """What a module prints as JSON, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert done.returncode == 0, f"the process itself ended with {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def fuzzed(name: str, seed: int, count: int) -> None:
    found = output("tests.fuzz.run", name, str(seed), str(count))
    assert found["bad"] == [], json.dumps(found["bad"], indent=1)
    assert 0 < found["accepted"] < count, "inputs that are all wrong, or all right, test little"


@pytest.mark.parametrize("name", readers())
def test_a_reader_survives(name):
    fuzzed(name, 0, FEW)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", readers())
def test_a_reader_survives_thousands(name):
    fuzzed(name, 1, MANY)


def test_there_are_a_hundred_thousand_cases_in_all():
    assert MANY * len(readers()) >= 100_000 and FEW * len(readers()) >= 3_000


@pytest.mark.parametrize("fault", FOUND, ids=lambda fault: fault.__name__)
def test_what_a_reader_must_not_do_is_found(fault):
    found = output("tests.fuzz.planted", fault.__name__)
    assert len(found["bad"]) == 1 and FOUND[fault] in found["bad"][0]["said"]
