"""One question to a process, whatever it does with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from course_lib.errors import EngineError, ExaminerFault
from course_lib.labs.framework.runner import module_command, read_hostile, run_isolated


def run(code: str, question: bytes = b"", *, launcher=None, time_limit_s: float = 20, max_bytes: int = 1 << 20) -> bytes:
    command = [sys.executable, "-I", "-c", code]
    return run_isolated(command, question, launcher=launcher, time_limit_s=time_limit_s, max_bytes=max_bytes)


def test_bytes_go_in_and_come_out():
    question = bytes(range(256)) * 4096
    echo = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    assert run(echo, question) == question[::-1]


def test_what_was_asked_cannot_be_read_again():
    """Another process that has the pipe open, such as a sandbox's first process, holds nothing of the question any more."""
    again = """
import os, select, sys
sys.stdin.buffer.read()
end = os.open("/proc/self/fd/0", os.O_RDONLY | os.O_NONBLOCK)
print("again:", os.read(end, 100))
"""
    assert run(again, b"a secret" * 50_000) == b"again: b''\n"


def test_a_process_that_does_not_read_may_answer():
    assert run("print('answer')", b"x" * (8 << 20)) == b"answer\n"


def test_launcher_wraps_the_command():
    assert run("import os; print(os.environ['SEEN'])", launcher=lambda argv: ["env", "SEEN=inside", *argv]) == b"inside\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("pass", "without an answer"),
        ("import os; os.abort()", "without an answer"),
        ("while True: print('x' * 1000)", "more than 1,048,576 bytes"),
        ("import time; time.sleep(100)", "within 1 s"),
        ("import sys, time; sys.stdout.write('x'); sys.stdout.flush(); time.sleep(100)", "within 1 s"),
    ],
)
def test_what_is_no_answer_is_one_line(code, words):
    started = time.monotonic()
    with pytest.raises(EngineError, match=words):
        run(code, time_limit_s=1 if "sleep" in code else 20)
    assert time.monotonic() - started < 15


def test_what_the_machine_lacks_is_no_learners_fault():
    """Packages that only PYTHONPATH adds were missing in these processes, and right models were "not an ONNX model"."""
    with pytest.raises(ExaminerFault, match="cannot start"):
        run_isolated(["/nowhere/python"], b"", time_limit_s=1, max_bytes=1)
    with pytest.raises(
        ExaminerFault, match=r"cannot be imported: No module named 'course_lib.nowhere'. Install the course for"
    ):
        run_isolated(module_command("course_lib.nowhere"), b"", time_limit_s=20, max_bytes=1000)


def test_a_process_finds_what_pythonpath_adds(tmp_path):
    (tmp_path / "on_a_cluster.py").write_text("def main():\n    print('found', end='')\n")
    code = """
from course_lib.labs.framework.runner import module_command, run_isolated
print(run_isolated(module_command("on_a_cluster"), b"", time_limit_s=20, max_bytes=100))
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.strip() == "b'found'", done.stderr


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (b"no JSON", dict),
        (b'{"a": 1}', lambda value: value["b"]),
        (b'"1)"', np.dtype),  # numpy evaluates it, and raises SyntaxError
        (b"[" * 100_000, list),
        (b"[" + b"{}," * 1_000_000 + b"0]", list),
    ],
    ids=["not JSON", "a key that is missing", "a class that nobody expected", "deep", "millions of values"],
)
def test_a_hostile_answer_is_the_submissions_fault_whatever_it_raises(answer, read):
    with pytest.raises(EngineError, match=r"^it is not an answer$"):
        read_hostile(answer, read, "it is not an answer")


def test_an_error_that_the_reader_names_stays():
    def read(value: object) -> None:
        raise EngineError(f"{value} is too many")

    with pytest.raises(EngineError, match="7 is too many"):
        read_hostile(b"7", read, "it is not an answer")
    assert read_hostile(b'{"a": [1]}', lambda value: value["a"], "") == [1]
