"""Every script in `benchmarks/` that has a command line answers ``--help``, so its imports exist and its options are valid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"
SCRIPTS = [path.name for path in sorted(FOLDER.glob("*.py")) if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]

# All scripts run in one process, which imports PyTorch once. Each finds its own folder on the path, as `python benchmarks/NAME.py` does,
# and imports the modules of `benchmarks` again.
PROGRAM = """
import contextlib, io, json, runpy, sys, traceback

folder, *scripts = sys.argv[1:]
libraries, answers = sys.path[1:], {}
for script in scripts:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("benchmarks", "tests")]:
        del sys.modules[name]
    sys.path[:] = [folder, *libraries]
    sys.argv[:] = [f"{folder}/{script}", "--help"]
    status, printed = "main returned", io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            status = end.code
        except BaseException:
            status = traceback.format_exc()
    answers[script] = status, printed.getvalue()
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[object, str]]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", PROGRAM, str(FOLDER), *SCRIPTS]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[object, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_ends_with_status_0(script: str, answers: dict[str, tuple[object, str]]) -> None:
    status, printed = answers[script]
    assert status == 0, status
    assert printed.startswith(f"usage: {script} [-h]"), printed[:200]
