"""Runs one reader in a process of its own: ``python -m tests.fuzz.run NAME SEED COUNT`` prints what happened as JSON."""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from tests.fuzz.mutator import mutated
from tests.fuzz.readers import Reader, readers

LONGEST_S, MOST_MIB = 2.0, 200  # of one case: processor time, and memory above what the process has
_KEPT = 5


class TooLong(BaseException):
    """A case took more than `LONGEST_S`. Not an Exception, so that no reader catches it."""


def run(name: str, seed: int, count: int) -> dict[str, Any]:
    """So many cases; a case that does what it must not is kept as text."""
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder
        return fuzzed(readers()[name](), f"{name} {seed}", count)


def fuzzed(reader: Reader, seed: str, count: int) -> dict[str, Any]:
    """The same for a reader."""
    for example in reader.seeds:  # imports, and what is made once
        _case(reader.read, example, reader.raises)
    draw, bad, accepted, most = random.Random(seed), [], 0, 0.0
    for number in range(count):
        data = mutated(draw, reader.seeds, reader.most_bytes)
        Path("/proc/self/clear_refs").write_text("5")  # the highest memory use begins anew
        before = _memory_mib("VmRSS")
        said = _case(reader.read, data, reader.raises)
        used = _memory_mib("VmHWM") - before
        most = max(most, used)
        if used > MOST_MIB:
            said = f"{used:.0f} MiB"
        accepted += said is None
        if said and said != "rejected" and len(bad) < _KEPT:
            bad.append({"case": number, "said": said, "data": repr(data[:300])})
    return {"cases": count, "accepted": accepted, "most_mib": round(most, 1), "bad": bad}


def _case(read: Any, data: bytes, raises: tuple[type[Exception], ...]) -> str | None:
    """None where the input was accepted, "rejected", or what went wrong."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        read(data)
        return None
    except raises as error:
        text = str(error) if isinstance(error, CourseError) else ""  # only these are shown
        return (
            "rejected" if len(text.splitlines()) <= 1 and len(text) < 5000 else f"a message that is not a line: {text[:200]!r}"
        )
    except TooLong:
        return f"more than {LONGEST_S:g} s"
    except BaseException as error:
        return "".join(traceback.format_exception_only(error)).strip()[:200] + " | " + _where(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "course_lib" in frame.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"


def _memory_mib(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def _too_long(*_: object) -> None:
    raise TooLong


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
