"""nbgrader's log in a file, and why nbgrader failed."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from typing_extensions import override

from course_lib._util.plain_text import plain


class NbgraderLog(logging.FileHandler):
    """Writes nbgrader's messages into a file, and remembers the last errors."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._error: BaseException | None = None
        self._message = ""

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
