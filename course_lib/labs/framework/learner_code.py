"""What every process needs that runs a learner's file: an import hook, and an error as one line.

It imports only Python's own modules, because it is also sent as text to sandboxes that do not have the course.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

_PERMITTED = {*sys.stdlib_module_names, "numpy"}


class NumpyOnly:
    """An import hook that rejects other packages, so that the functions are the learner's own work."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Reject `name`, or leave it to Python's own finders."""
        if name.partition(".")[0] not in _PERMITTED:
            raise ImportError(f"the file may import numpy and Python's own modules, not {name!r}")


def described(error: BaseException, file: str) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f"line {frames[-1].lineno}: " if frames else ""
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]
