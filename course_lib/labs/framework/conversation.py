"""A conversation with a process that runs learner code: a line of JSON each way, with limits on time and size.

The judge keeps what is secret, such as the times of a simulated device, and answers the process's questions one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from course_lib._util.files import scratch_folder
from course_lib.engines.worker.allowance import Launcher, allowance_of
from course_lib.errors import EngineError, OutOfTime
from course_lib.labs.framework.isolation import ENDED, read_hostile

_PIECE = 1 << 16  # bytes that are sent or read at a time
_DEEPEST = 16  # levels of lists and objects
_INVALID = "its process answered in another form than a line of JSON"


class Conversation:
    """A process and its two pipes. Leaving the block ends the process and its descendants.

    The allowance of the launcher pays for all of the time from the start to the end: the judge's own work on long messages, and on
    callbacks with large arguments, takes longer than sending them.
    """

    def __init__(
        self, command: Sequence[str], *, launcher: Launcher | None = None, time_limit_s: float, max_bytes: int = 1 << 20
    ) -> None:
        """Start `command`.

        Args:
            launcher: wraps the command; the judge passes its sandbox.
            time_limit_s: of the whole conversation.
            max_bytes: of one line from the process.

        Raises:
            EngineError: it cannot be started.
        """
        self.limit_s, self.max_bytes, self.rest = time_limit_s, max_bytes, bytearray()
        self.allowance = allowance_of(launcher)
        self.allowance.check()
        self.began = time.monotonic()
        self.deadline = self.began + min(time_limit_s, self.allowance.left)
        self.ending = contextlib.ExitStack()
        environment = dict(os.environ)
        if launcher is None:  # a sandbox has a /tmp of its own; elsewhere the process is ended before it can remove its files
            environment["TMPDIR"] = str(self.ending.enter_context(scratch_folder("conversation-")))
        try:
            self.process = subprocess.Popen(
                launcher(command) if launcher else list(command),
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self.ending.close()
            raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from None
        assert self.process.stdin is not None and self.process.stdout is not None
        self.to, self.source = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.to, False)

    def __enter__(self) -> Conversation:
        """The conversation itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process, and charge its time."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self.ending.close()
        self.allowance.left -= time.monotonic() - self.began

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Send one message, and wait for the next one from the process.

        Raises:
            EngineError: it is late, too long or not a JSON object, or the process has ended.
        """
        self._send(json.dumps(message).encode() + b"\n")
        return parsed(self._line())

    def _send(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            self._wait([], [self.to])
            try:
                left = left[os.write(self.to, left[:_PIECE]) :]
            except BrokenPipeError:
                raise EngineError("its process ended before all questions were asked") from None

    def _line(self) -> bytes:
        while (end := self.rest.find(b"\n")) < 0:
            if len(self.rest) > self.max_bytes:
                raise EngineError(f"it answered with more than {self.max_bytes:,} bytes and was stopped")
            self._wait([self.source], [])
            chunk = os.read(self.source, _PIECE)
            if not chunk:
                raise EngineError(ENDED)
            self.rest += chunk
        line = bytes(self.rest[:end])
        del self.rest[: end + 1]
        return line

    def _wait(self, readable: list[int], writable: list[int]) -> None:
        now = time.monotonic()
        if now < self.deadline and any(select.select(readable, writable, [], self.deadline - now)[:2]):
            return
        if time.monotonic() - self.began >= self.allowance.left:
            raise OutOfTime(self.allowance.said)
        raise EngineError(f"it did not finish within {self.limit_s:g} s and was stopped")


def parsed(line: bytes) -> dict[str, Any]:
    """The JSON object in a line that may be hostile.

    Raises:
        EngineError: it is another value, not JSON, or nested deeper than any message needs.
    """

    def read(message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise ValueError("not an object")
        _check_depth(message, _DEEPEST)
        return message

    return read_hostile(line, read, _INVALID)


def _check_depth(value: Any, levels: int) -> None:
    if not levels:
        raise ValueError("nested too deep")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_depth(part, levels - 1)
