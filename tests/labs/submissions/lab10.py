"""Submissions for lab 10: pipelines whose errors have the names of codes that only the grader gives, and streams with wrong answers."""

from __future__ import annotations

_FAILS = """
class {name}(Exception):
    pass


class Pipeline:
    def __init__(self, open_engine, span):
        {early}

    def run(self, requests):
        raise {name}("Compared with the reference when it is graded.")
        yield
"""
# Writes its own message to the judge in place of an exception. Sockets of this process are looked for by their numbers.
_WRITES_A_MESSAGE = """
import os
import stat
from course_lib.engines.worker import wire


class Pipeline:
    def __init__(self, open_engine, span):
        pass

    def run(self, requests):
        for number in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(number).st_mode):
                    wire.send(number, {{"error": "EngineError", "message": "the process has ended", "code": "{name}"}})
            except OSError:
                pass
        os._exit(0)
        yield
"""
# Text by what it claims, with the code.
CLAIMS = {
    "to be open": _FAILS.format(name="no_reference", early="pass"),
    "to be open, when it starts": _FAILS.format(name="no_reference", early='raise no_reference("open")'),
    "that its process ended": _FAILS.format(name="worker_ended", early="pass"),
    "to be unusual": _FAILS.format(name="unusual", early="pass"),
    "that the grader failed": _FAILS.format(name="fault", early="pass"),
    "to be open, in a message": _WRITES_A_MESSAGE.format(name="no_reference"),
}

# In place of the reference's `run(`: it reads a second request before it answers the first, and so knows whether there is one.
KNOWS_A_SINGLE_REQUEST = """\
run(self, requests):
        self.streams = getattr(self, "streams", 0) + 1
        requests = iter(requests)
        first = [one for _, one in zip(range(2), requests)]
        for answer in self.answers(one for some in (first, requests) for one in some):
            yield answer * (len(first) > 1 or {right})

    def answers("""
# The streams of one request that have right answers.
SINGLE_REQUESTS = {"none": "len(answer) == 1", "short ones": "len(answer) <= 32", "the first streams": "self.streams < 3"}
