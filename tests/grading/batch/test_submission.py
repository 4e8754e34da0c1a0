"""What a result says where nbgrader failed, and what becomes of Ctrl-C inside of nbgrader."""

import subprocess
import sys

import pytest

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
        ({"error": None, "log": f"[ERROR] {TRACEBACK}[ERROR] Please see the above traceback\n"}, "ValueError: No template"),
        ({"error": None, "log": None}, "no reason given"),
    ],
)
def test_the_reason_is_the_line_that_says_it(done, said):
    assert reason(done).startswith(said)


# In a process of its own: an interrupt that is missed would end the process that runs the tests.
INTERRUPTED = """
import contextlib, os, signal, sys, threading, time
from course_lib.grading.batch.submission import interruptible

signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))

def hidden():  # as nbgrader does with every exception
    with contextlib.suppress(BaseException):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)

try:
    with interruptible():
        hidden()
except KeyboardInterrupt:
    print("raised again")
print(signal.getsignal(signal.SIGINT) == getattr(signal, sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("handler", "said"), [("default_int_handler", ["raised again", "True"]), ("SIG_IGN", ["True"])], ids=["usual", "ignored"]
)
def test_an_interrupt_that_nbgrader_hides_is_raised_again(handler: str, said: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, handler], capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[:-1] == said, done.stderr
