"""What a forked process has of its parent's files."""

import subprocess
import sys

_FORK = """
import os
from course_lib._util.processes import close_all_but
(_, judges), (reader, kept) = os.pipe(), os.pipe()
if not os.fork():
    close_all_but({kept})
    try:
        os.write(judges, b"forged")
    except OSError:
        os.write(kept, b"closed")
    os._exit(0)
os.wait()
print(os.read(reader, 6).decode())
"""


def test_a_fork_can_be_left_without_the_files_of_its_parent() -> None:
    """A learner's server had the pipe on which its report goes to the judge."""
    done = subprocess.run([sys.executable, "-c", _FORK], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("closed", "")
