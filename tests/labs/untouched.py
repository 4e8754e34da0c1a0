"""What a released notebook leaves behind when nobody has solved anything: its cells run in order, past every error."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm_processes

ROOT = Path(__file__).resolve().parents[2]
WRITE_FILE = "%%writefile "


def leave_untouched(name: str, folder: Path) -> None:
    """Run ``labs/NAME`` in `folder` as the grader does, in its own process, without Jupyter."""
    notebook = ROOT / "labs" / name / f"{name}.ipynb"
    code = f"import runpy, sys; sys.argv = ['', {str(notebook)!r}]; runpy.run_path({__file__!r}, run_name='__main__')"
    python = warm_processes.command() if warm_processes.VARIABLE in os.environ else [sys.executable]
    command = [*python, "-c", code]
    environment = {**os.environ, "NBGRADER_EXECUTION": "autograde", "MPLBACKEND": "agg", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    # Places in cells raise when they run; lab 08's are in a file that a cell writes.
    assert "NotImplementedError" in notebook.read_text(), "the release holds no place for a solution"


def main(notebook: str) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(Path(notebook).read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code" and source.startswith(WRITE_FILE):
            first, _, text = source.partition("\n")
            Path(first.removeprefix(WRITE_FILE)).write_text(text)
        elif cell["cell_type"] == "code":
            try:
                exec(compile(source, "cell", "exec"), names)
            except Exception as error:
                print(type(error).__name__)


if __name__ == "__main__":
    sys.path[0] = ""  # as in a notebook: modules that lie beside it
    with contextlib.redirect_stderr(None):
        main(sys.argv[1])
