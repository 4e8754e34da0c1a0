"""A learner's rope.cu on a GPU: compiled by nvcc, checked at a size too large for the CPU, and timed with a plain copy.

The examiner's clock decides. The program launches the kernel n times before it answers. Two questions that differ only in n
therefore differ in time only by the launches, because both pay the same to start the process and CUDA.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from course_lib.engines.cuda import driver
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BackendUnavailable, EngineError, ExaminerFault
from course_lib.labs.lab08_plugin.judge.kernel import compile_program, run_program
from course_lib.labs.lab08_plugin.judge.kernel_cases import WIDTHS, Case, exponents
from course_lib.plugins import compilers
from course_lib.plugins.launchers import DTYPES

BIG = (8, 4096, 32, 128)
_SPARE = 64  # rows of the tables beyond the sequence: launches begin at different rows
_WORTH_S = 1.5  # seconds of launches to time
_MOST = 20_000
_NO_DEVICE = {35, 46, 100, 802, 803, 804}  # cudaError_t: no driver, no device, or none that can be used


@dataclass(frozen=True)
class Question:
    """One launch of a kernel's program.

    Attributes:
        launches: number of kernel launches.
        first, step: first token of y in the answer, and step to the next one.
        is_copy: copy x to y instead.
    """

    case: Case
    launches: int = 2
    first: int = 0
    step: int = 1
    is_copy: bool = False

    def wire(self) -> bytes:
        """Fourteen int64 as bytes, as `Question` in sandboxed/cuda."""
        return np.array([*self.case.wire()[:10], self.launches, self.first, self.step, self.is_copy], np.int64).tobytes()

    @property
    def tokens(self) -> np.ndarray:
        """Numbers of the tokens in the answer, int64 ``(tokens,)``."""
        return np.arange(self.first, self.case.shape[0] * self.case.shape[1], self.step)


def usable() -> bool:
    """Whether a kernel can be compiled for a GPU and run on it here."""
    try:
        compilers.nvcc()
    except BackendUnavailable:
        return False
    return driver.capability() is not None


@dataclass(frozen=True)
class GpuKernel:
    """A kernel compiled by nvcc, ready to be run under a launcher."""

    program: bytes
    launcher: Launcher | None

    @classmethod
    def compile(cls, source: str, launcher: Launcher | None) -> GpuKernel:
        """Compile the text of rope.cu.

        Raises:
            EngineError: the file does not compile.
        """
        return cls(compile_program(source, "time_on_gpu.cu", launcher, gpu=True), launcher)

    def wrong_numbers(self, case: Case, *, step: int = 1, launches: int = 5) -> int:
        """Number of wrong values in every `step`-th token, in both sets of x and y.

        Raises:
            EngineError: CUDA rejected the kernel, or its process sent an invalid answer.
            ExaminerFault: the GPU is no longer available.
        """
        asked = Question(case, launches, case.seed % step, step)
        bits = np.frombuffer(self._ask(asked), np.uint32 if WIDTHS[case.dtype] == 4 else np.uint16)
        if bits.size != 2 * len(asked.tokens) * case.shape[2] * case.shape[3]:
            raise EngineError("the kernel's process sent an invalid answer")
        sets = bits.reshape(2, len(asked.tokens), -1)
        return sum(_wrong(asked, sets[which], which) for which in (0, 1))

    def launch_s(self, case: Case, *, is_copy: bool = False) -> float:
        """Seconds of one launch, by the examiner's clock.

        Raises:
            EngineError: see `wrong_numbers`.
        """

        def clocked(launches: int) -> float:
            started = time.perf_counter()
            self._ask(Question(case, launches, first=1 << 40, is_copy=is_copy))
            return time.perf_counter() - started

        return per_launch(clocked)

    def _ask(self, asked: Question) -> bytes:
        answer = run_program(self.program, asked.wire(), self.launcher, max_bytes=256 << 20)
        error = int(np.frombuffer(answer, np.int64, 1)[0]) if len(answer) >= 8 else -1
        if error:
            if error in _NO_DEVICE:
                raise ExaminerFault(f"the GPU has gone: CUDA error {error}")
            raise EngineError(f"on the GPU the kernel failed with CUDA error {error}")
        return answer[8:]


def _wrong(asked: Question, y: np.ndarray, which: int) -> int:
    """Wrong numbers of the set `which`, whose last launch began at a row that follows from the number of launches."""
    case, wrong = asked.case, 0
    last = max(i for i in range(asked.launches) if i % 2 == which)
    row = last % (case.spare // 8 + 1) * 8
    cos, sin = case.tables()
    drawn = replace(case, seed=case.seed + 16 * which)
    for token, found in zip(asked.tokens, y, strict=True):
        position = token % case.shape[1]
        x = drawn.token(int(token))
        table = slice(row + position, row + position + 1)
        wrong += int((case.excess(found, x, (cos[table], sin[table])) > 1).sum())
    return wrong


def wrong_on_gpu(source: str, odd: tuple[int, int, int, int], rng: np.random.Generator, launcher: Launcher | None) -> str:
    """What is wrong on the GPU at an odd shape and at the large one; empty if nothing is wrong.

    Raises:
        EngineError: see `GpuKernel`.
    """
    kernel = GpuKernel.compile(source, launcher)
    for dtype in DTYPES:
        for usual in (Case(odd, dtype, True, int(rng.integers(1 << 31)), 2), big_case(rng, dtype)):
            lowest_x, lowest_table = exponents(rng, dtype)
            case = replace(usual, lowest_x=lowest_x, lowest_table=lowest_table)
            if wrong := kernel.wrong_numbers(case, step=97 if case.shape == BIG else 1):
                return f"{case}: {wrong} numbers wrong"
    return ""


def reference_s(case: Case, launcher: Launcher | None) -> tuple[float, float]:
    """Seconds for a launch of the course's kernel, and for a copy of the same number of values.

    Raises:
        ExaminerFault: the times cannot be measured.
    """
    try:
        kernel = GpuKernel.compile(compilers.SOURCE.read_text(), launcher)
        return kernel.launch_s(case), kernel.launch_s(case, is_copy=True)
    except EngineError as error:
        raise ExaminerFault(f"the reference kernel cannot be timed: {error}") from None


def per_launch(clocked: Callable[[int], float]) -> float:
    """The time of one launch, from the times of 2 and of many launches (the faster of two runs each), without the cost of the process."""
    none = min(clocked(2) for _ in range(2))
    guess = max((clocked(200) - none) / 198, 1e-6)
    many = int(np.clip(_WORTH_S / guess, 200, _MOST))
    return max(min(clocked(many) for _ in range(2)) - none, 1e-9) / (many - 2)


def big_case(rng: np.random.Generator, dtype: str = "float16") -> Case:
    """The benchmark's shape with fresh numbers."""
    return Case(BIG, dtype, False, int(rng.integers(1 << 31)), _SPARE)
