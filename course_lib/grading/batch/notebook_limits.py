"""Limits for a submitted notebook: it is run and shown only if reading and showing it is bounded in time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from course_lib._util.plain_text import plain
from course_lib.grading.batch import notebook_reader

_MOST_SECONDS, _MOST_MEMORY = 8, 2 << 30  # of a processor; the course's notebooks take less than one


def prepare(path: Path, released: Path) -> str:
    """Replace a submitted notebook by one that nbgrader takes: the learner's cells, and the released notebook's metadata.

    A written answer that cannot be read is replaced by a request to open the submitted file, so a person decides about its points.

    Returns:
        Why the submitted notebook cannot be read, in one line; "" if it can.
    """
    if not path.is_file():
        return set_aside(path, released, "there is no notebook")
    command = [sys.executable, "-I", notebook_reader.__file__, str(path), str(released), str(_MOST_SECONDS), str(_MOST_MEMORY)]
    reader = subprocess.run(command, capture_output=True)
    try:
        notebook, problem = json.loads(reader.stdout)
    except (ValueError, RecursionError):
        return set_aside(path, released, f"to read and show it takes more than {_MOST_SECONDS} s or {_MOST_MEMORY >> 30} GiB")
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return plain(problem, 200)


def set_aside(path: Path, released: Path, problem: str) -> str:
    """Write the released notebook with open answers, and return the problem."""
    notebook = notebook_reader.grafted([], json.loads(released.read_bytes()), problem)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return problem
