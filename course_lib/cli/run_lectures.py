"""Lectures from top to bottom, as they were handed out: ``python -m course_lib.cli.run_lectures 00 02`` or ``... all``.

This is `make test` of the learner's bundle. Each lecture runs in a copy of its folder, so nothing of the reader's is changed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from course_lib._util.files import course_folder
from course_lib.errors import CourseError

CELL_S = 180  # longest time of one cell


def main(numbers: Sequence[str]) -> int:
    """Run the lectures with these numbers, print a line for each and a summary, and return the exit status."""
    begin, failed = time.monotonic(), 0
    paths = chosen(numbers)
    for path in paths:
        started = time.monotonic()
        reason = failure(path)
        failed += bool(reason)
        print(f"{path.stem}: {'FAILED' if reason else 'passed'} in {time.monotonic() - started:.0f} s", flush=True)
        if reason:
            print(f"    {reason}", flush=True)
    print(f"==== {failed} failed, {len(paths) - failed} passed in {time.monotonic() - begin:.0f} s ====")
    return 1 if failed else 0


def chosen(numbers: Sequence[str]) -> list[Path]:
    """The notebooks of the lectures with these two-digit numbers; all of them for ``all``.

    Raises:
        CourseError: the course's folder is not found, or it does not have such a lecture.
    """
    root = course_folder()
    if root is None:
        raise CourseError("the course's folder was not found: change to it, or set COURSE_ROOT to its path")
    known = {path.name[:2]: path for path in sorted((root / "lectures").glob("[0-9][0-9]_*.ipynb"))}
    if list(numbers) == ["all"]:
        return list(known.values())
    if not numbers or not set(numbers) <= known.keys():
        raise CourseError(f"expected lectures from {', '.join(known)}, or all; found {' '.join(numbers) or 'none'}")
    return [known[number] for number in numbers]


def failure(path: Path) -> str:
    """Why a notebook does not run from top to bottom, in one line; "" if it does."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / path.parent.name
        shutil.copytree(path.parent, folder)
        where = {"metadata": {"path": str(folder)}}
        client = NotebookClient(nbformat.read(path, as_version=4), timeout=CELL_S, resources=where, kernel_name="python3")
        try:
            client.execute(env={**os.environ, "COURSE_ROOT": str(path.parents[1])})
        except CellExecutionError as error:
            return f"{error.ename}: {error.evalue.splitlines()[0] if error.evalue else ''}"
        except (CellTimeoutError, DeadKernelError) as error:
            return str(error).splitlines()[0]
    return ""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CourseError as error:
        sys.exit(f"run_lectures: {error}")
