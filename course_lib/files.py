"""Writing files so that a reader, or a process killed at any moment, never meets half of one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_temporary(target: Path, content: bytes | memoryview) -> str:
    """A finished temporary file in the folder of `target`, ready to be renamed; on an error it leaves none.

    Not `tempfile`'s: its files are for their owner alone, and what is renamed keeps that.
    """
    temporary = str(target.parent / f".{target.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(temporary)
        raise
    return temporary


def write_atomically(target: Path, content: bytes | memoryview) -> None:
    """Write `target` as a whole or, on an error, not at all.

    Raises:
        OSError: as from any write; nothing was changed.
    """
    temporary = write_temporary(target, content)
    try:
        os.replace(temporary, target)
    except OSError:
        os.unlink(temporary)
        raise
