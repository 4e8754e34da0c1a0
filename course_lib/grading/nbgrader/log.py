"""nbgrader's log in a file, and why nbgrader failed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from typing_extensions import override

from course_lib._util.plain_text import plain

_TIMES = logging.Formatter()


class NbgraderLog(logging.FileHandler):
    """Writes nbgrader's messages into a file, and remembers the last errors.

    A message can hold what a learner wrote, such as a cell's name. Its lines are made safe to print, and only a record's first line
    starts with a time, so nobody can forge another record.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self._error: BaseException | None = None
        self._message = ""

    @override
    def format(self, record: logging.LogRecord) -> str:
        first, *others = map(plain, record.getMessage().splitlines() or [""])
        return "\n".join((f"{_TIMES.formatTime(record)} {first}", *(f"    {line}" for line in others)))

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            # nbgrader writes tracebacks as messages, while it handles the exception.
            self._error = sys.exc_info()[1] or self._error
            self._message = record.getMessage()
        super().emit(record)

    def reason(self) -> str:
        """The last exception that was logged, otherwise the last error, in one line."""
        said = f"{type(self._error).__name__}: {self._error}" if self._error else self._message
        return plain(said or "no reason given", 300)
