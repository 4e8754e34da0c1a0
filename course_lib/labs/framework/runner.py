"""Run a learner's code in a process of its own, with limits on time and size, and read its answer, which may be hostile."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import course_lib
from course_lib._util.plain_text import plain
from course_lib._util.processes import end_tree
from course_lib.engines.worker.allowance import Launcher, allowance_of
from course_lib.errors import NO_ANSWER, EngineError, ExaminerFault
from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Case
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.criteria import ALL, LISTED, Criterion, all_right
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.learner_code import decoded
from course_lib.labs.framework.submission import read_text

_T = TypeVar("_T")
# Where a process without environment finds packages: the course, and what PYTHONPATH adds, as on many clusters.
_LIBRARY = os.pathsep.join((str(Path(course_lib.__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")))
NOT_IMPORTED = "the course's own modules cannot be imported: "  # begins an answer that is no learner's fault
_STOP = f"sys.exit(0 * sys.stdout.write({NOT_IMPORTED!r} + str(error)))"
_CHILD = f"""
import os, sys
sys.path[:0] = filter(None, sys.argv[1].split(os.pathsep))
try:
    from {{}} import main
except ImportError as error:
    {_STOP}
main()
"""
_LOADER = f"""
import os, sys, types
sys.path[:0] = filter(None, sys.argv[1].split(os.pathsep))
def load(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    try:
        exec(compile(text, name, "exec"), module.__dict__)
    except ImportError as error:
        {_STOP}
    return module
"""
_PIECE = 1 << 16  # bytes that go in or out at a time
_MOST_MARKS = 1_000_000  # of brackets, commas and colons in an answer
MAX_BYTES = 64 << 10  # of a learner's file
_MOST_ANSWERED = 32 << 20  # bytes of all answers
_INVALID = "its process did not answer as the grader's program does"
_LONGEST = 200  # characters of a learner's text in a message


def run_isolated(
    command: Sequence[str], question: bytes, *, launcher: Launcher | None = None, time_limit_s: float, max_bytes: int
) -> bytes:
    """The standard output of `command` with `question` on its standard input. A late or longer answer ends its processes.

    Raises:
        EngineError: the answer is late or too long, or the process died.
        ExaminerFault: the process could not start, or could not import the course's modules.
    """
    with allowance_of(launcher).waiting(time_limit_s) as limit_s:
        return _run(launcher(command) if launcher else list(command), question, limit_s, max_bytes)


def _run(command: list[str], question: bytes, time_limit_s: float, max_bytes: int) -> bytes:
    deadline = time.monotonic() + time_limit_s
    try:
        # The question is not a file, which could be read again by whatever else runs in a sandbox that has it open.
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, start_new_session=True)
    except OSError as error:
        raise ExaminerFault(f"cannot start {command[0]!r}: {error.strerror}") from None
    try:
        answer = _exchange(process, question, deadline, max_bytes)
    except TimeoutError:
        raise EngineError(f"it gave no answer within {time_limit_s:g} s and was stopped", code=NO_ANSWER) from None
    finally:
        end_tree(process)
        for end in (process.stdin, process.stdout):
            assert end is not None
            end.close()
    if not answer:
        raise EngineError("its process ended without an answer: did it exit, crash, or use gigabytes of memory?")
    if answer.startswith(NOT_IMPORTED.encode()):
        raise ExaminerFault(f"{plain(answer.decode(errors='replace'), _LONGEST)}. Install the course for {command[0]}")
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


def module_command(module: str) -> list[str]:
    """The command of a process that runs ``main`` of one of the course's modules."""
    return [sys.executable, "-I", "-c", _CHILD.format(module), _LIBRARY]


def _text_command(modules: Sequence[ModuleType]) -> list[str]:
    """The command of a process that runs ``main`` of the last of these modules, where the course's files are not visible.

    The modules travel as text. Each may import Python's own modules, numpy, and the modules before it.
    """
    texts = [(module.__name__, Path(str(module.__file__)).read_text(encoding="utf-8")) for module in modules]
    program = [_LOADER, *(f"last = load({name!r}, {text!r})" for name, text in texts), "last.main()"]
    return [sys.executable, "-I", "-c", "\n".join(program), os.environ.get("PYTHONPATH", "")]


def ask(module: str, question: Any, read: Callable[[Any], _T], launcher: Launcher | None, *, time_limit_s: float) -> _T:
    """What `read` makes of the answer to a question, both JSON values, that ``main`` of one of the course's modules gives."""
    command, sent = module_command(module), json.dumps(question).encode()
    answer = run_isolated(command, sent, launcher=launcher, time_limit_s=time_limit_s, max_bytes=_MOST_ANSWERED)
    return read_hostile(answer, read)


def read_hostile(answer: bytes, read: Callable[[Any], _T], complaint: str = _INVALID) -> _T:
    """What `read` makes of the JSON value in an answer that may be hostile, or an EngineError with this complaint.

    Each error in `read` but an `EngineError` is an invalid answer: a list of classes always misses one, such as the SyntaxError of a
    strange dtype. An answer that would take hundreds of MB as Python values is invalid, too.
    """
    try:
        if sum(answer.count(mark) for mark in b"[{,:") > _MOST_MARKS:
            raise ValueError
        return read(json.loads(answer))
    except EngineError:
        raise
    except Exception:
        raise EngineError(complaint) from None


@dataclass(frozen=True)
class Failed:
    """A call without a result."""

    line: str  # the error, or that there is no such function
    empty: bool = False  # whether the body is not written yet

    def __str__(self) -> str:
        return "not written yet" if self.empty else self.line


def call(
    file: Path,
    calls: Mapping[str, Sequence[Sequence[Any]]],
    examiner: Examiner,
    *,
    program: ModuleType = learner_code,
    time_limit_s: float = 30.0,
) -> dict[str, list[Any]]:
    """By function, the result of each call, or `Failed`. All calls are made in one process, which can read all arguments at once.

    Args:
        calls: by function, the arguments of each call, by position: numbers, texts, lists, dictionaries and arrays. A tuple arrives
            as a list.
        program: a module whose ``main`` reads the request and answers in its own way, with `learner_code`. It sees numpy only.
    """
    request = {"file": file.name, "source": read_text(file, MAX_BYTES), "questions": learner_code.plain_values(calls)}
    answer = run_isolated(
        _text_command([learner_code] if program is learner_code else [learner_code, program]),
        json.dumps(request).encode(),
        launcher=examiner.bare_launcher or examiner.launcher,
        time_limit_s=time_limit_s,
        max_bytes=_MOST_ANSWERED,
    )
    counts = {function: len(several) for function, several in calls.items()}
    return read_hostile(answer, lambda values: _read(values, counts, file.name))


def _read(values: Any, counts: Mapping[str, int], file: str) -> dict[str, list[Any]]:
    if "error" in values:
        raise EngineError(f"{file}: {plain(values['error'], _LONGEST)}")
    results = {}
    for function, count in counts.items():
        several = values.get(function, [{"error": f"{file} defines no function {function}"}] * count)
        if len(several) != count:
            raise ValueError("not one answer for each call")
        results[function] = [_result(one) for one in several]
    return results


def _result(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "error" in value:
            return Failed(plain(value["error"], _LONGEST), value.get("empty") is True)
        if "dtype" in value:
            return decoded(value)
        return {str(key): _result(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_result(one) for one in value]
    return value  # a text as it is: a key that is compared must not be cut


def case_criterion(
    name: str, cases: Sequence[Case], results: Sequence[Any], needed_for: str = ALL, *, hint: str = "", of_function: bool = True
) -> Criterion:
    """Whether the results are the expected ones. Each wrong one is listed with the words of its mistake, if it is a usual one.

    Args:
        of_function: whether `call` returned them. The expected results of other cases are the learner's answers: they are not shown.
    """
    wrong, expected = [], []
    for case, result in zip(cases, results, strict=True):
        if not same(result, case.expected, case.tolerance):
            name_of_case = case.shown or shown(case.arguments)
            usual = (words for words, mistaken in case.mistakes.items() if same(result, mistaken, case.tolerance))
            words = str(result) if isinstance(result, Failed) else next(usual, f"found {shown(result)}")
            wrong.append(f"{name_of_case}: {words}")
            if of_function and not isinstance(result, Failed):
                expected.append(f"{shown(case.expected)} for {name_of_case}")
    return replace(all_right(name, wrong, len(cases), needed_for, hint=hint), expected="; ".join(expected[:LISTED]))
