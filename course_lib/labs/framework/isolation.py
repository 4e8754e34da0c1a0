"""One question to its own process: bytes in, bytes out, with a deadline and a cap, so that whatever runs there may be hostile."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError

_PIECE = 1 << 16  # bytes that go in or out at a time


def run_isolated(
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
    try:
        process = subprocess.Popen(
            launcher(command) if launcher else list(command),
            stdin=subprocess.PIPE,  # a file could be read again, by whatever else runs in a sandbox that has it open
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from None
    try:
        answer = _exchange(process, question, deadline, max_bytes)
    except TimeoutError:
        raise EngineError(f"it gave no answer within {time_limit_s:g} s and was stopped") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
    if not answer:
        raise EngineError("its process ended without an answer")
    return answer


def _exchange(process: subprocess.Popen[bytes], question: bytes, deadline: float, max_bytes: int) -> bytes:
    """Read the whole output while the question is sent in pieces."""
    assert process.stdin is not None and process.stdout is not None
    to, source, data, left = process.stdin.fileno(), process.stdout.fileno(), bytearray(), memoryview(question)
    os.set_blocking(to, False)
    while True:
        wait = deadline - time.monotonic()
        readable, writable, _ = select.select([source], [] if process.stdin.closed else [to], [], max(wait, 0))
        if wait <= 0 or not (readable or writable):
            raise TimeoutError
        if writable:
            try:
                left = left[os.write(to, left[:_PIECE]) :]
            except BrokenPipeError:  # it does not want the rest
                left = left[:0]
            if not left:
                process.stdin.close()
        if readable:
            chunk = os.read(source, _PIECE)
            if not chunk:
                return bytes(data)
            data += chunk
            if len(data) > max_bytes:
                raise EngineError(f"it answered with more than {max_bytes:,} bytes and was stopped")
