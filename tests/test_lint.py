"""Style and types, as `make lint` checks them; here they run beside the other tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("tool", [["ruff", "check", "."], pytest.param(["mypy"], marks=pytest.mark.slow)], ids=["ruff", "mypy"])
def test_it_has_nothing_to_say(tool: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *tool], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
