"""A learner's rope.cu, compiled and run in its own process: what its threads computed and which memory they touched."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.isolation import run_isolated
from course_lib.labs.lab08_plugin.judge.kernel_cases import WIDTHS, Case
from course_lib.labs.lab08_plugin.sandboxed import compile_kernel
from course_lib.labs.lab08_plugin.sandboxed import run_kernel as lab08_run_child
from course_lib.plugins import compilers

TIME_LIMIT_S = 40.0
_MAX_PROGRAM, _MAX_ANSWER = 16 << 20, 96 << 20
_CUDA = Path(__file__).resolve().parents[1] / "sandboxed" / "cuda"
_BUFFERS = ("x", "cos", "sin", "y", "memory")
_REPORT = np.dtype(
    [
        *((name, "i8") for name in ("fault", "error")),
        *(("block", "i8", 3), ("thread", "i8", 3)),
        *((name, "i8") for name in ("buffer", "offset", "size", "is_write")),
        *((name, "i8") for name in ("threads", "launches", "accesses", "y_bytes", "wrong_stream", "writers", "in_sequence")),
    ]
)
ACCESS = np.dtype(
    [
        ("site", "u8"),
        ("block", "u4"),
        ("thread", "u4"),
        ("offset", "u4"),
        ("buffer", "u1"),
        ("size", "u1"),
        ("is_write", "?"),
        ("_", "u1"),
    ]
)
_OUTSIDE, _MISALIGNED, _READ_ONLY, _ON_HOST, _CRASH, _TIME, _HOST_MEMORY, _FRAME, _CALL = range(1, 10)


@dataclass(frozen=True, eq=False)
class Run:
    """The result of one case.

    Attributes:
        fault: why it was stopped, empty if it finished.
        kind: ``""``, or in one word what kind of fault it was.
        excess: largest error as a share of what is allowed; infinite if a number is missing or not finite.
        wrong: numbers with an error above what is allowed.
        wrong_first: those of them that are the first number of a pair, `a`.
        accesses: accesses of dtype `ACCESS`, in the sequence in which the threads ran; empty unless they were recorded.
        threads: number of launched threads, of all launches together.
        writers: number of threads that wrote a part of y, of all launches together.
        in_sequence: the most numbers of y that one thread wrote, added up over the four launches with the most.
        launches: number of kernel launches by the one call of rope_launch.
        on_stream: whether every launch was on the stream that rope_launch received.
        in_surplus: whether it was stopped beyond the end of x or y with more threads than pairs.
    """

    case: Case
    fault: str
    kind: str
    excess: float
    wrong: int
    accesses: np.ndarray
    threads: int
    writers: int = 0
    in_sequence: int = 0
    launches: int = 1
    on_stream: bool = True
    wrong_first: int = 0
    in_surplus: bool = False

    @property
    def right(self) -> bool:
        """Whether the run ended without a fault and every number is within the tolerance."""
        return not self.fault and self.wrong == 0

    def message(self) -> str:
        """The error of a run that is not correct."""
        if self.fault:
            return f"{self.case}: {self.fault}."
        far = (
            f"the worst {self.excess:.3g} times as far off as allowed"
            if np.isfinite(self.excess)
            else "some missing or not finite"
        )
        return f"{self.case}: {self.wrong} of {np.prod(self.case.shape)} numbers wrong, {far}."


def compile_program(source: str, driver: str, launcher: Launcher | None, *, gpu: bool = False) -> bytes:
    """The program made of the text of rope.cu and a driver of sandboxed/cuda. It is untrusted: run it with `run_program` only.

    Raises:
        EngineError: it does not compile, or contains what a kernel must not; its code is that of `compile_kernel.Rejected`.
    """
    return _compiled({"source": source, "driver": str(_CUDA / driver), "gpu": gpu}, launcher)


def compile_ptx(source: str, launcher: Launcher | None) -> str:
    """The PTX that nvcc makes from rope.cu for compute capability 9.0, without a GPU.

    Raises:
        EngineError: the file does not compile, or contains something that a kernel must not contain.
    """
    return _compiled({"source": source}, launcher).decode(errors="replace")


def _compiled(request: dict[str, Any], launcher: Launcher | None) -> bytes:
    request |= {"include": [str(_CUDA), str(compilers.FOLDER)]}
    answer = run_isolated(
        _python(compile_kernel),
        json.dumps(request).encode() + b"\n",
        launcher=launcher,
        time_limit_s=TIME_LIMIT_S,
        max_bytes=_MAX_PROGRAM,
    )
    if answer[:3] != b"ok ":
        code, _, text = answer[3:].decode(errors="replace").partition(" ")
        raise EngineError(" ".join(text.split())[:400], code=code)
    return answer[3:]


def run_program(program: bytes, question: bytes, launcher: Launcher | None, *, max_bytes: int = _MAX_ANSWER) -> bytes:
    """The answer of a compiled program.

    Raises:
        EngineError: the answer is empty, too long or late.
    """
    message = f"{len(program):<20}".encode() + program + question
    return run_isolated(_python(lab08_run_child), message, launcher=launcher, time_limit_s=TIME_LIMIT_S, max_bytes=max_bytes)


def run_kernel(source: str, cases: Sequence[Case], launcher: Launcher | None = None) -> list[Run]:
    """Compile `source` for the host and run it on each case in sequence.

    Raises:
        EngineError: the source does not compile, contains something that a kernel must not contain, or its process sent an invalid answer.
    """
    program = compile_program(source, "examine_on_host.cpp", launcher)
    question = np.array([len(cases)], np.int64).tobytes() + b"".join(case.wire().tobytes() for case in cases)
    answer = run_program(program, question, launcher)
    runs: list[Run] = []
    for case in cases:
        if answer:
            run, answer = _read(case, answer)
        else:
            run = _stopped(case, "it was not run: an earlier case did not end", "ended")
        runs.append(run)
    return runs


def _python(script: ModuleType) -> list[str]:
    return [sys.executable, "-I", str(Path(str(script.__file__)).resolve())]


def _read(case: Case, answer: bytes) -> tuple[Run, bytes]:
    """The first report in an untrusted answer, and the rest of the answer."""
    if len(answer) < _REPORT.itemsize:
        raise EngineError("the kernel's process sent an invalid answer")
    report = np.frombuffer(answer, _REPORT, 1)[0]
    body = answer[_REPORT.itemsize :]
    width, count, recorded = WIDTHS[case.dtype], int(np.prod(case.shape)), int(report["accesses"])
    if report["fault"]:
        threads, end = int(report["threads"]), count * width
        surplus = int(report["buffer"]) in (0, 3) and int(report["offset"]) >= end and threads > count // 2
        return _stopped(case, *_said(case, report), threads=threads, in_surplus=surplus), body
    size = count * width
    if report["y_bytes"] != size or recorded < 0 or len(body) < size + recorded * ACCESS.itemsize:
        raise EngineError("the kernel's process sent an invalid answer")
    accesses = np.frombuffer(body, ACCESS, recorded, size)
    left = body[size + recorded * ACCESS.itemsize :]
    if report["error"]:
        reason = f"rope_launch returned the CUDA error {report['error']}"
        if report["error"] == 9:
            reason += (
                ": a grid or block that CUDA rejects (a grid's y and z end at 65535, a block at 1024 threads, its z at 64)"
            )
        return _stopped(case, reason, "rejected"), left
    excess = case.excess(np.frombuffer(body, np.uint32 if width == 4 else np.uint16, count))
    far = excess > 1
    first = far[..., ::2] if case.interleaved else far[..., : case.shape[3] // 2]
    return Run(
        case,
        "",
        "",
        float(excess.max(initial=0)),
        int(far.sum()),
        accesses,
        int(report["threads"]),
        writers=int(report["writers"]),
        in_sequence=int(report["in_sequence"]) // width,
        launches=int(report["launches"]),
        on_stream=not report["wrong_stream"],
        wrong_first=int(first.sum()),
    ), left


def _stopped(case: Case, reason: str, kind: str, threads: int = 0, *, in_surplus: bool = False) -> Run:
    numbers = int(np.prod(case.shape))
    return Run(
        case, reason, kind, np.inf, numbers, np.zeros(0, ACCESS), threads, wrong_first=numbers // 2, in_surplus=in_surplus
    )


def _said(case: Case, report: np.void) -> tuple[str, str]:
    """A fault in words: which thread, what it did, and where."""
    block, thread = (f"({', '.join(str(int(n)) for n in report[name])})" for name in ("block", "thread"))
    who = f"thread {thread} of block {block}"
    size, buffer = int(report["size"]), _BUFFERS[min(max(int(report["buffer"]), 0), 4)]
    does = f"{'writes' if report['is_write'] else 'reads'} {size} bytes"
    width = WIDTHS[case.dtype] if buffer in "xy" else 4
    count = int(np.prod(case.shape)) if buffer in "xy" else case.rows * case.shape[3] // 2
    where = f"at {buffer}[{int(report['offset']) // width}]"
    outside = f"{who} {does} {where}, and {buffer} has {count} numbers"
    if buffer == "memory":
        outside = f"{who} {does} far from x, cos, sin and y"
    return {
        _OUTSIDE: (outside, "table" if buffer in ("cos", "sin") else "outside"),
        _MISALIGNED: (f"{who} {does} at once {where}, an address that is not a multiple of {size}", "misaligned"),
        _READ_ONLY: (f"{who} writes into {buffer}, which is an input", "input"),
        _ON_HOST: (f"rope_launch itself touches {buffer}: that memory is the GPU's, only a kernel may", "host"),
        _HOST_MEMORY: (
            f"{who} {does} of the host's memory, which no GPU reaches: pass numbers as the kernel's arguments",
            "host",
        ),
        _CRASH: (f"{who} crashed (signal {int(report['error'])})", "crash"),
        _TIME: (f"it was stopped after 5 s of work, in {who}", "time"),
        _FRAME: (f"a function {does} outside of its local variables, over the return addresses on the stack", "frame"),
        _CALL: ("a call or jump goes to an address at which no function of rope.cu begins", "call"),
    }.get(int(report["fault"]), ("the kernel's process sent an invalid answer", "ended"))
