"""``python -m course_lib``: the `course` command, with a one-line error if the command cannot be imported."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the `course` command. If a package is missing, exit with one line of advice instead of a traceback."""
    _leave_out_the_current_folder()
    try:
        from course_lib.cli.app import main as run
    except ModuleNotFoundError as error:
        from course_lib.cli.installation import advice

        sys.exit(f"course: {advice(error)}")
    run()


def _leave_out_the_current_folder() -> None:
    """``python -m`` looks for modules in the current folder first, which can be a submission with its own ``numpy.py``."""
    ours = Path(__file__).resolve().parents[1]
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path.cwd() or Path(entry).resolve() == ours]


if __name__ == "__main__":
    main()
