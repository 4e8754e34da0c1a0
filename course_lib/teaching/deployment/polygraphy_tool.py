"""NVIDIA's Polygraphy from a notebook: the commands that a terminal takes, with the lines of their output that matter."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from course_lib.errors import CourseError

TIME_LIMIT_S = 120
WIDTH = 92  # columns of a notebook's page in the book

# Polygraphy imports PyTorch whenever it can, to read tensors of PyTorch's from its files. There are none here, and `debug reduce`
# starts Polygraphy a dozen times.
_PROGRAM = """#!{python}
import sys
sys.modules["torch"] = None
from polygraphy.tools import main
sys.exit(main())
"""


class Polygraphy:
    """Runs Polygraphy's commands in one folder. A command line that such a command starts finds the same program.

    >>> Polygraphy("models")("inspect model digits.onnx", show="Node")  # doctest: +SKIP
    $ polygraphy inspect model digits.onnx
        ---- 21 Node(s) ----
    0
    """

    def __init__(self, folder: str | os.PathLike[str], *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self.folder, self.time_limit_s = Path(folder), time_limit_s
        self._programs = tempfile.TemporaryDirectory(prefix="polygraphy-")
        program = Path(self._programs.name) / "polygraphy"
        program.write_text(_PROGRAM.format(python=sys.executable))
        program.chmod(0o755)

    def __call__(self, command: str, show: str = "") -> int:
        """Run one command, and print it with those lines of its output that match the regular expression `show`.

        Returns:
            the exit status: 0, or 1 where the tool reports a failure, such as outputs that differ.

        Raises:
            CourseError: the command ended in any other way, for example because Polygraphy does not know an option.
        """
        status, said = self.run(command)
        typed = textwrap.wrap(f"$ polygraphy {command}", WIDTH - 6, break_long_words=False, break_on_hyphens=False)
        print(" \\\n    ".join(typed))
        for line in said.splitlines():
            text = without_command(line)
            if re.search(show, text):
                print(text if len(text) <= WIDTH else text[: WIDTH - 3] + "...")
        return status

    def run(self, command: str) -> tuple[int, str]:
        """Run one command in silence.

        Returns:
            the exit status, see `__call__`, and all of the output.
        """
        paths = f"{self._programs.name}{os.pathsep}{os.environ.get('PATH', '')}"
        try:
            done = subprocess.run(
                [str(Path(self._programs.name) / "polygraphy"), *shlex.split(command)],
                cwd=self.folder,
                env={**os.environ, "PATH": paths},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=self.time_limit_s,
            )
        except subprocess.TimeoutExpired:
            raise CourseError(f"`polygraphy {command}` did not finish within {self.time_limit_s:g} s") from None
        if done.returncode not in (0, 1):
            last = (done.stdout.strip().splitlines() or ["no output"])[-1]
            raise CourseError(f"`polygraphy {command}` failed with exit status {done.returncode}: {last[:300]}")
        return done.returncode, done.stdout


def without_command(line: str) -> str:
    """A line of Polygraphy's without its times, which differ between machines, and without the whole command, which it repeats."""
    return re.sub(r" \| (Runtime|Duration|Command):? .*", "", line)
