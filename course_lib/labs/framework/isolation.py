"""Send one question to a separate process and read its answer, with limits on time and size, because the process may be hostile."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import course_lib
from course_lib._util.processes import end_tree
from course_lib.engines.worker.allowance import Launcher, allowance_of
from course_lib.errors import NO_ANSWER, BuildError, CourseError, EngineError, OutOfTime

ENDED = "its process ended without an answer: did it exit, crash, or use gigabytes of memory?"
_T = TypeVar("_T")
_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from {} import {} as main; main()"
_LOADER = """
import sys, types
def load(name, text):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
    return module
"""
_DONE, _REJECTED, _FAILED = b"+", b"-", b"!"  # how an answer of `transform` begins
_MOST_MARKS = 1_000_000  # of brackets, commas and colons in an answer
_LONGEST = 500  # bytes of a complaint
_PIECE = 1 << 16  # bytes that go in or out at a time


def run_isolated(
    command: Sequence[str], question: bytes, *, launcher: Launcher | None = None, time_limit_s: float, max_bytes: int
) -> bytes:
    """The standard output of `command` with `question` on its standard input.

    Args:
        launcher: wraps the command; the judge passes its sandbox.
        time_limit_s: the process and its descendants are ended after this many seconds.
        max_bytes: largest answer that is read; a longer one ends the process as well.

    Raises:
        EngineError: the answer is late or too long, or the process could not start or died.
    """
    with allowance_of(launcher).waiting(time_limit_s) as limit_s:
        return _run(command, question, launcher, limit_s, max_bytes)


def _run(command: Sequence[str], question: bytes, launcher: Launcher | None, time_limit_s: float, max_bytes: int) -> bytes:
    deadline = time.monotonic() + time_limit_s
    try:
        process = subprocess.Popen(
            launcher(command) if launcher else list(command),
            stdin=subprocess.PIPE,  # a file could be read again, by whatever else runs in a sandbox that has it open
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from None
    try:
        answer = _exchange(process, question, deadline, max_bytes)
    except TimeoutError:
        raise EngineError(f"it gave no answer within {time_limit_s:g} s and was stopped", code=NO_ANSWER) from None
    finally:
        end_tree(process)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
    if not answer:
        raise EngineError(ENDED)
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


def module_command(module: str, function: str = "main") -> list[str]:
    """The command of a process that runs a function of one of the course's modules."""
    return [sys.executable, "-I", "-c", _CHILD.format(module, function), _LIBRARY]


def text_command(*modules: ModuleType) -> list[str]:
    """The command of a process that runs ``main`` of the last of these modules, where the course's files are not visible.

    The modules travel as text. Each may import Python's own modules, numpy, and the modules before it.
    """
    texts = [(module.__name__, Path(str(module.__file__)).read_text(encoding="utf-8")) for module in modules]
    program = [_LOADER, *(f"last = load({name!r}, {text!r})" for name, text in texts), "last.main()"]
    return [sys.executable, "-I", "-c", "\n".join(program)]


class Rejected(EngineError):
    """The course's own code rejected the model that it was to transform."""


def read_hostile(answer: bytes, read: Callable[[Any], _T], complaint: str) -> _T:
    """What `read` makes of the JSON value in an answer that may be hostile.

    Args:
        read: takes the value. Each error in it but an `EngineError` is an invalid answer: a list of classes always misses one, such as
            the SyntaxError of a strange dtype.
        complaint: the message about an invalid answer.

    Raises:
        EngineError: the answer is not JSON, would take hundreds of MB as Python values, or `read` failed.
    """
    try:
        if sum(answer.count(mark) for mark in b"[{,:") > _MOST_MARKS:
            raise ValueError
        return read(json.loads(answer))
    except EngineError:
        raise
    except Exception:
        raise EngineError(complaint) from None


def transformed(
    module: str, model: bytes, *, function: str = "main", launcher: Launcher | None = None, time_limit_s: float = 60.0
) -> bytes:
    """A serialized model as a function of a module returns it, which calls `transform` in its own process.

    Raises:
        Rejected: a `CourseError` there, with its message.
        EngineError: any other error there, or no answer; see `run_isolated`.
    """
    command = module_command(module, function)
    limit = 2 * len(model) + (1 << 20)
    answer = run_isolated(command, model, launcher=launcher, time_limit_s=time_limit_s, max_bytes=limit)
    if answer[:1] != _DONE:
        complaint = answer[1 : _LONGEST + 1].decode(errors="replace")
        raise Rejected(complaint) if answer[:1] == _REJECTED else EngineError(complaint)
    return answer[1:]


def examined(
    module: str,
    question: bytes,
    parsed: Callable[[bytes], _T],
    file: str,
    advice: str,
    *,
    launcher: Launcher | None,
    time_limit_s: float,
) -> _T:
    """What a module's process finds in a submission's graph.

    Args:
        module, question: as for `transformed`.
        parsed: reads the answer, or raises EngineError.
        file: the submission's file, for messages.
        advice: how to write it.

    Raises:
        BuildError: the process rejected the graph, or failed.
    """
    try:
        return parsed(transformed(module, question, launcher=launcher, time_limit_s=time_limit_s))
    except Rejected as error:
        raise BuildError(f"{file}: {error}") from None
    except OutOfTime as error:
        raise BuildError(str(error), code=error.code) from None
    except EngineError:
        raise BuildError(f"{file} is not an ONNX model, or only a part of one: {advice}") from None


def transform(change: Callable[[bytes], bytes]) -> None:
    """The child's end of `transformed`: a model on standard input, the changed one or one line of complaint on standard output."""
    try:
        answer = _DONE + change(sys.stdin.buffer.read())
    except CourseError as error:
        answer = _REJECTED + _one_line(str(error))
    except Exception as error:  # a file can be broken in more ways than protobuf and onnx have classes for
        answer = _FAILED + _one_line(repr(error))
    sys.stdout.buffer.write(answer)


def _one_line(text: str) -> bytes:
    return " ".join(text.split()).encode(errors="replace")[:_LONGEST]
