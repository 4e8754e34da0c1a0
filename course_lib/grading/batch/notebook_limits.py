"""Limits for a submitted notebook: it is run and shown only if reading and showing it is bounded in time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from course_lib._util.plain_text import plain
from course_lib.grading.batch import notebook_reader

_MOST_SECONDS, _MOST_MEMORY = 8, 2 << 30  # of a processor; the course's notebooks take less than one


@dataclass(frozen=True)
class ReadNotebook:
    """What was read of a submitted notebook.

    Attributes:
        problem: what could not be read and why, in one line; "" if everything could.
        has_cells: whether any cell could be read. A notebook without one is not worth running.
    """

    problem: str
    has_cells: bool


def prepare(path: Path, released: Path) -> ReadNotebook:
    """Replace a submitted notebook by one that nbgrader takes: the learner's cells, and the released notebook's metadata.

    A written answer that cannot be read is replaced by a request to open the submitted file, so a person decides about its points.
    """
    if not path.is_file():
        return set_aside(path, released, "there is no notebook")
    command = [sys.executable, "-I", notebook_reader.__file__, str(path), str(released), str(_MOST_SECONDS), str(_MOST_MEMORY)]
    reader = subprocess.run(command, capture_output=True)
    try:
        notebook, problem, has_cells = json.loads(reader.stdout)
    except (ValueError, RecursionError):
        return set_aside(path, released, f"to read and show it takes more than {_MOST_SECONDS} s or {_MOST_MEMORY >> 30} GiB")
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return ReadNotebook(plain(problem, 200), has_cells)


def set_aside(path: Path, released: Path, problem: str) -> ReadNotebook:
    """Write the released notebook with open answers."""
    notebook = notebook_reader.grafted([], json.loads(released.read_bytes()), problem)
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return ReadNotebook(problem, has_cells=False)
