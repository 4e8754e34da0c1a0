"""``python -m course_lib``: the `course` command, with one clear line where the command itself cannot be imported."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        from course_lib.cli import main as run
    except ModuleNotFoundError as error:
        from course_lib.installation import advice

        sys.exit(f"course: {advice(error)}")
    run()


if __name__ == "__main__":
    main()
