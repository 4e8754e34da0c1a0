"""One question to a process of its own: bytes in, bytes out, with a deadline and a cap, so that whatever runs there may be hostile."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence

from course_lib.engines.worker import Launcher
from course_lib.errors import EngineError


def ask(
    command: Sequence[str], question: bytes, *, launcher: Launcher | None = None, time_limit_s: float, max_bytes: int
) -> bytes:
    """What `command` writes on its standard output when it gets `question` on its standard input.

    Args:
        launcher: wraps the command; the judge's is its sandbox.
        time_limit_s: the process and everything it started is ended after that many seconds.
        max_bytes: largest answer that is read; a longer one ends the process as well.

    Raises:
        EngineError: no answer in time, too long an answer, or none at all because the process could not start or died.
    """
    deadline = time.monotonic() + time_limit_s
    with tempfile.TemporaryFile() as given:
        given.write(question)
        given.seek(0)
        try:
            process = subprocess.Popen(
                launcher(command) if launcher else list(command),
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from None
        try:
            answer = _read(process, deadline, max_bytes)
        except TimeoutError:
            raise EngineError(f"it gave no answer within {time_limit_s:g} s and was stopped") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    if not answer:
        raise EngineError("its process ended without an answer")
    return answer


def _read(process: subprocess.Popen[bytes], deadline: float, max_bytes: int) -> bytes:
    """Everything up to the end of the output."""
    assert process.stdout is not None
    descriptor, data = process.stdout.fileno(), bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise TimeoutError
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return bytes(data)
        data += chunk
        if len(data) > max_bytes:
            raise EngineError(f"it answered with more than {max_bytes:,} bytes and was stopped")
