"""Functions without an engine have less memory than an engine, and exceeding it costs one task."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib import labs
from course_lib.grading.judge import judging
from course_lib.labs.lab03_tuning import reference
from tests.grading.conftest import needs_sandbox

LAB = labs.find("lab03")
_MIB = 1 << 20
_HELD = f"HELD = b'1' * {500 * _MIB}\n"


def _points(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> dict[str, float]:
    """Of a submission whose timing.py begins with `code`."""
    monkeypatch.setattr(judging, "FUNCTIONS_BYTES", 300 * _MIB)
    file = folder / "timing.py"
    file.write_text(code + file.read_text())
    return {outcome.task.id: outcome.points for outcome in judging.judge(LAB, folder).outcomes}


@needs_sandbox
def test_a_function_that_holds_too_much_costs_its_own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timing.py").write_text(reference.TIMING)
    (tmp_path / "timing_cache.py").write_text(reference.CACHE)
    points = _points(tmp_path, monkeypatch, _HELD)
    assert (points["timing"], points["cache"]) == (0, 2)


def test_the_limit_is_lower_than_that_of_an_engine() -> None:
    assert judging.RUNNER_SANDBOX.memory_bytes / 3 >= judging.FUNCTIONS_BYTES
    assert [name for name in labs.names() if "memory_bytes" in labs.find(name).sandbox] == ["lab06_qat"], "it uses torch"
