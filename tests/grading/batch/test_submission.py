"""What becomes of Ctrl-C inside of nbgrader."""

import subprocess
import sys

import pytest

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
