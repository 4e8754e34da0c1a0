"""Functions without an engine have less memory than an engine, however they hold it."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib import labs
from course_lib.grading.judge import judging
from tests.grading.conftest import needs_sandbox

LAB = labs.find("lab03")
_MIB = 1 << 20
_HELD = f"HELD = b'1' * {500 * _MIB}\n"
_IN_A_CHILD = f"""
import os, time
ready, tell = os.pipe()
if not os.fork():
    held = b"1" * {500 * _MIB}
    os.write(tell, b"1")
    time.sleep(9)
os.read(ready, 1)
time.sleep(1)
"""
_IN_FILES = f"""
import time
for number in range(5):
    with open(f"/dev/shm/{{number}}", "wb") as file:
        file.write(b"1" * {100 * _MIB})
time.sleep(1)
"""


def _points(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    monkeypatch.setattr(judging, "FUNCTIONS_BYTES", 300 * _MIB)
    return {outcome.task.id: outcome.points for outcome in judging.judge(LAB, folder).outcomes}


@needs_sandbox
@pytest.mark.parametrize("code", [_HELD, _IN_A_CHILD, _IN_FILES], ids=["bytes", "child", "files"])
def test_a_function_that_holds_too_much_is_stopped(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LAB.write_reference(tmp_path)
    file = tmp_path / "choice.py"
    file.write_text(code + file.read_text())
    assert _points(tmp_path, monkeypatch) == {"timing": 3, "choice": 0, "budget": 1, "cache": 3, "recipe": 1}


def test_the_limit_is_lower_than_that_of_an_engine() -> None:
    assert judging.RUNNER_SANDBOX.memory_bytes / 3 >= judging.FUNCTIONS_BYTES
    assert [name for name in labs.names() if "memory_bytes" in labs.find(name).sandbox] == ["lab06_qat"], "it uses torch"
