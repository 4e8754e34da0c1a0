"""What a result says where nbgrader failed, and what becomes of Ctrl-C inside of nbgrader."""

import contextlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from course_lib.grading.batch import submission
from course_lib.grading.batch.submission import reason

TRACEBACK = """Traceback (most recent call last):
  File "/site-packages/nbconvert/exporters/templateexporter.py", line 633, in get_template_names
    raise ValueError(msg)
ValueError: No template sub-directory with name 'classic' found in the following paths:
\t/home/learner/.local/share/jupyter
\t/usr/share/jupyter
"""


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (
            {"error": TRACEBACK, "log": None},
            "ValueError: No template sub-directory with name 'classic' found in the following paths:",
        ),
        ({"error": "", "log": "grading student\n" + TRACEBACK}, "ValueError: No template sub-directory"),
        ({"error": TRACEBACK, "log": "grading student\nError: no submissions\nnothing was graded\n\n"}, "nothing was graded"),
        ({"error": "Traceback (most recent call last):\n  File\nKeyboardInterrupt\n", "log": ""}, "KeyboardInterrupt"),
        ({"error": None, "log": None}, "no reason given"),
    ],
)
def test_the_reason_is_the_line_that_says_it(done, said):
    assert reason(done).startswith(said)


def hidden(seconds: float = 5.0) -> None:
    """An interrupt of this process that is caught and not told, as nbgrader does with every exception."""
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(seconds)


def test_an_interrupt_that_nbgrader_hides_is_raised_again() -> None:
    with pytest.raises(KeyboardInterrupt), submission.interruptible():
        hidden()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_that_is_ignored_stays_ignored() -> None:
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with submission.interruptible():
            hidden(0)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)


def test_threads_other_than_the_first_leave_signals_alone() -> None:
    with ThreadPoolExecutor(1) as pool, submission.interruptible():
        handler = signal.getsignal(signal.SIGINT)

        def inside() -> object:
            with submission.interruptible():
                return signal.getsignal(signal.SIGINT)

        assert pool.submit(inside).result() is handler
