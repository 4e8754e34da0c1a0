"""Readers with a planted fault each: ``python -m tests.fuzz.planted NAME`` runs one case in a process of its own.

Not in the process of a test: a profiling signal that comes late would end it.
"""

from __future__ import annotations

import json
import sys

from course_lib.errors import CourseError
from tests.fuzz import run
from tests.fuzz.readers import Reader


def hangs(_: bytes) -> None:
    while True:
        pass


def crashes(data: bytes) -> None:
    {}[data]


def takes_memory(_: bytes) -> None:
    len(bytes(300 << 20).replace(b"\0", b"\1"))


def says_a_page(_: bytes) -> None:
    raise CourseError("one\ntwo")


FOUND = {hangs: "more than 2 s", crashes: "KeyError", takes_memory: " MiB", says_a_page: "not a line"}

if __name__ == "__main__":
    read = next(one for one in FOUND if one.__name__ == sys.argv[1])
    print(json.dumps(run.fuzzed(Reader(read, [b"seed"]), "0", 1)))
