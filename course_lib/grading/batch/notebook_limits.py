"""Limits for a submitted notebook: it is run and shown only if reading and showing it is bounded in time and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from course_lib._util.plain_text import plain
from course_lib.grading.batch import notebook_reader

_MOST_SECONDS, _MOST_MEMORY = 8, 2 << 30  # of a processor; the course's notebooks take less than one


def unreadable(path: Path) -> str:
    """Why a notebook cannot be read or shown within the limits, or "".

    A notebook that can is rewritten without its outputs, because it runs again.
    """
    if not path.is_file():
        return "it is missing or not a plain file"
    command = [sys.executable, "-I", notebook_reader.__file__, str(path), str(_MOST_SECONDS), str(_MOST_MEMORY)]
    read = subprocess.run(command, capture_output=True)
    if read.returncode == 0:
        path.write_bytes(read.stdout)
        return ""
    if read.returncode == 1:
        return plain(read.stderr.decode(errors="replace"), 200)
    return f"to read and show it takes more than {_MOST_SECONDS} s or {_MOST_MEMORY >> 30} GiB"
