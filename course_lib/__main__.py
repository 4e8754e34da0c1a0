"""``python -m course_lib``: the `course` command, with a one-line error if the command cannot be imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the `course` command. If a package is missing, exit with one line of advice instead of a traceback."""
    try:
        from course_lib.cli.app import main as run
    except ModuleNotFoundError as error:
        from course_lib.cli.installation import advice

        sys.exit(f"course: {advice(error)}")
    run()


if __name__ == "__main__":
    main()
