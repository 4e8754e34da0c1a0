"""The time that a submission may take in all, in however many processes: the limits of single calls do not bound their sum."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from course_lib.errors import EngineError, OutOfTime

Launcher = Callable[[Sequence[str]], list[str]]  # wraps a process's command, for example in a sandbox


class Allowance:
    """Seconds for which the examiner waits, taken from one sum.

    Args:
        seconds: in all.
        message: what a submission is told when they are used up; ``{seconds}`` is their number.
    """

    def __init__(self, seconds: float = float("inf"), message: str = "") -> None:
        self.seconds = self.left = seconds
        self.message = message

    @property
    def used_up(self) -> bool:
        """Whether nothing is left."""
        return self.left <= 0

    @property
    def said(self) -> str:
        """The message for a submission that has used it up."""
        return self.message.format(seconds=self.seconds)

    def check(self) -> None:
        """Do nothing if something is left.

        Raises:
            OutOfTime: nothing is.
        """
        if self.used_up:
            raise OutOfTime(self.said)

    @contextmanager
    def waiting(self, limit_s: float) -> Iterator[float]:
        """Take the time that the block waits for a process. The block gets the seconds that it may wait, at most `limit_s`.

        Raises:
            OutOfTime: nothing is left, before the block or when it gave up.
        """
        self.check()
        began = time.monotonic()
        try:
            yield min(limit_s, self.left)
        except EngineError:
            if time.monotonic() - began >= self.left:
                raise OutOfTime(self.said) from None
            raise
        finally:
            self.left -= time.monotonic() - began


@dataclass(frozen=True)
class Charged:
    """A launcher whose processes all take their time from one allowance."""

    launcher: Launcher
    allowance: Allowance = field(repr=False)

    def __call__(self, argv: Sequence[str]) -> list[str]:
        """The command as the launcher wraps it."""
        return self.launcher(argv)


def allowance_of(launcher: Launcher | None) -> Allowance:
    """The allowance of a launcher's processes, without an end for other launchers."""
    return launcher.allowance if isinstance(launcher, Charged) else Allowance()


def uncharged(launcher: Launcher | None) -> Launcher | None:
    """The launcher for the course's own work, which takes no time from a submission's allowance."""
    return launcher.launcher if isinstance(launcher, Charged) else launcher
