"""What a kernel's process may do to the examiner on a GPU, played by programs of the host: each ends as an outcome with its reason."""

from __future__ import annotations

import subprocess
import time

import pytest

from course_lib import labs
from course_lib.errors import EngineError
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.health import Device
from course_lib.grading.judge.judging import judge
from course_lib.labs.lab08_plugin.judge import gpu, kernel
from tests.labs.test_lab08 import contract, played  # noqa: F401  (fixtures)

LAB = labs.find("lab08")
PROGRAMS = {
    "never ends": ("for (;;) {}", "it gave no answer within 2 s and was stopped"),
    "answers without end": (
        "static char block[1 << 20]; for (;;) write(1, block, sizeof block);",
        "it answered with more than 268,435,456 bytes and was stopped",
    ),
    "crashes": ("abort();", "its process ended without an answer"),
    "an illegal address": ("long long error = 700; write(1, &error, 8);", "the kernel failed with CUDA error 700"),
    "out of memory": ("long long error = 2; write(1, &error, 8);", "the kernel failed with CUDA error 2"),
    "half an answer": ("int half = 0; write(1, &half, 4);", "the kernel failed with CUDA error -1"),
    "no numbers": ("long long fine = 0; write(1, &fine, 8);", "the kernel's process sent an invalid answer"),
}


def program(folder, body: str) -> bytes:
    source = folder / "program.c"
    source.write_text(f"#include <stdlib.h>\n#include <unistd.h>\nint main(void) {{ {body} return 0; }}\n")
    subprocess.run(["gcc", "-O0", "-w", str(source), "-o", str(folder / "program")], check=True)
    return (folder / "program").read_bytes()


@pytest.fixture
def bounded(monkeypatch):
    """The judge's own deadline, a shorter one."""
    run = gpu.run_program

    def run_program(*arguments, **named):
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "TIME_LIMIT_S", 2.0)
            return run(*arguments, **named)

    monkeypatch.setattr(gpu, "run_program", run_program)


CASE = gpu.Case((1, 3, 2, 8), "float32", False, 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_ends_with_its_reason(tmp_path, bounded, name):
    body, said = PROGRAMS[name]
    with pytest.raises(EngineError) as raised:
        gpu.GpuKernel(program(tmp_path, body), None).wrong_numbers(CASE)
    assert said in str(raised.value)


def test_the_judge_grades_a_kernel_that_never_ends(tmp_path, monkeypatch, bounded):
    body, said = PROGRAMS["never ends"]
    compiled = program(tmp_path, body)
    LAB.write_reference(tmp_path)
    monkeypatch.setattr(gpu, "usable", lambda: True)
    monkeypatch.setattr(gpu, "compile_program", lambda *a, **k: compiled)
    monkeypatch.setattr(gpu, "big_case", lambda *a: CASE)
    started = time.monotonic()
    verdict = judge(LAB, tmp_path, trusted=bool(sandbox.problem()))
    assert time.monotonic() - started < 60 and verdict.provenance["device"] == Device.here().name
    found = {outcome.task.id: outcome for outcome in verdict.outcomes}
    assert (found["kernel"].tier, found["memory"].tier) == ("partial", "none")
    assert said in found["kernel"].message and said in found["memory"].message, found


def test_the_next_submission_is_graded_right(tmp_path, played, monkeypatch, contract):  # noqa: F811
    played()
    LAB.write_reference(tmp_path)
    monkeypatch.setattr(gpu.GpuKernel, "launch_s", lambda self, case, **_: 1e-3)
    verdict = judge(LAB, tmp_path, trusted=True)
    assert verdict.score == verdict.max_score
