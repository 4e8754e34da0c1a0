"""What learners get of lab 08: rotations with fresh numbers, and rotary.cu compiled in a sandbox, watched on the processor, timed on a GPU.

On a GPU the examiner's clock decides. The program launches the kernel n times before it answers. Two questions that differ only in n
therefore differ in time only by the launches, because both pay the same to start the process and CUDA.
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.cuda import driver
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BackendUnavailable, EngineError, ExaminerFault
from course_lib.labs.framework.examination import ours
from course_lib.labs.framework.runner import run_isolated
from course_lib.labs.lab08_plugin.sandboxed import kernel as sandboxed
from course_lib.plugins import compilers
from course_lib.plugins.launchers import DTYPES

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
BUFFERS = ("x", "cos", "sin", "positions", "y")
_ROUNDING = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # half a step of the type, relative
_SMALLEST = {"float32": 0.0, "float16": 2.0**-24, "bfloat16": 2.0**-133}

Shape = tuple[int, int, int, int]
# Shapes with the number of rotated numbers. In a plain shape every size is a power of two, and 16 bytes are either rotated or copied.
PLAIN: tuple[tuple[Shape, int], ...] = (
    ((1, 32, 1, 128), 32),
    ((2, 4, 16, 64), 32),
    ((4, 8, 2, 256), 64),
    ((2, 8, 64, 128), 64),
    ((1, 2, 4, 1024), 1024),
)
ODD: tuple[tuple[Shape, int], ...] = (
    ((3, 7, 5, 64), 20),
    ((1, 3, 17, 66), 66),
    ((5, 9, 1, 130), 2),
    ((1, 33, 3, 80), 36),
    ((2, 5, 7, 254), 128),
    ((7, 1, 2, 96), 94),
    ((1, 1, 70000, 2), 2),
)


@dataclass(frozen=True)
class Rotation:
    """One call of rotary_launch. Its numbers follow from its seed, here and in the program that runs the kernel.

    Attributes:
        shape: batch, heads, sequence, head size.
        rotary: numbers of a head that are rotated.
        dtype: a name of `DTYPES`.
        spare: rows of the tables beyond the sequence.
        shifted: 0, or 1 to 5 if that one of `BUFFERS` begins one number after an aligned address.
        watched: record each access of each thread.
    """

    shape: Shape
    rotary: int
    dtype: str
    seed: int
    spare: int = 0
    shifted: int = 0
    watched: bool = False

    @property
    def plain(self) -> bool:
        """Whether the shape is one of `PLAIN` and every array is aligned."""
        return (self.shape, self.rotary) in PLAIN and not self.shifted

    @property
    def rows(self) -> int:
        """Rows of the tables cos and sin."""
        return self.shape[2] + self.spare

    @property
    def count(self) -> int:
        """How many numbers x has."""
        return int(np.prod(self.shape))

    @property
    def heads(self) -> int:
        """How many heads x has, of all tokens together."""
        return self.count // self.shape[3]

    def __str__(self) -> str:
        where = f", {BUFFERS[self.shifted - 1]} not aligned" if self.shifted else ""
        return f"{self.dtype}, shape {self.shape}, {self.rotary} rotated{where}"

    def sizes(self) -> list[int]:
        """The first eight int64 of `Case` and `Question` in sandboxed/cuda."""
        return [DTYPES.index(self.dtype), *self.shape, self.rotary, self.rows, self.seed]

    def wire(self) -> bytes:
        """`Case` in sandboxed/cuda: `sizes`, whether it is shifted and watched, and a stream."""
        stream = secrets.randbits(40) * 16 + 4096
        return np.array([*self.sizes(), self.shifted, self.watched, stream, 0], np.int64).tobytes()

    def x(self, heads: np.ndarray, which: int = 0) -> np.ndarray:
        """The numbers of some heads, float64 ``(heads, head size)``.

        Args:
            heads: their numbers, int64: heads of one token count in the order of memory.
            which: of several sets of numbers.
        """
        size = self.shape[3]
        index = (heads[:, None] * size + np.arange(size)).astype(np.uint32)
        return numbers(drawn(index, self.dtype, -5, self.seed + 16 * which), self.dtype)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, each float64 ``(rows, rotary / 2)``. No angle has them, so a kernel that ignores the tables is wrong."""
        index = np.arange(self.rows * self.rotary // 2, dtype=np.uint32)
        cos, sin = (numbers(drawn(index, "float32", -8, self.seed + i), "float32").reshape(self.rows, -1) for i in (1, 2))
        return cos, sin

    def positions(self, heads: np.ndarray, first: int = 0) -> np.ndarray:
        """The position of the token of each of these heads.

        Args:
            first: number at which the array of positions begins.
        """
        _, of_token, sequence, _ = self.shape
        token = heads // (of_token * sequence) * sequence + heads % sequence
        return hashed((token + first).astype(np.uint32), self.seed + 3) % np.uint32(self.rows)

    def excess(self, y: np.ndarray, heads: np.ndarray | None = None, *, which: int = 0, first: int = 0) -> np.ndarray:
        """Error of each number as a share of what is allowed: at most 1 for a kernel that computes in float32 and rounds once.

        With u = 2^-24, each product and the sum are off by at most u times their size, together 2u (|a cos| + |b sin|). The
        final rounding to a smaller type adds half a step of that type. What is copied must be exact.

        Args:
            y: bits that the kernel wrote.
            heads, which, first: as for `x` and `positions`; None means all heads.
        """
        heads = np.arange(self.heads) if heads is None else heads
        x, position = self.x(heads, which), self.positions(heads, first)
        cos, sin = (table[position] for table in self.tables())
        exact, size = rotate(x, cos, sin), rotate(np.abs(x), np.abs(cos), np.abs(sin), sign=1)
        allowed = 2.0**-23 * size
        allowed += _ROUNDING[self.dtype] * (np.abs(exact) + allowed) + _SMALLEST[self.dtype] / 2
        allowed[:, self.rotary :] = 0
        found = numbers(y, self.dtype).reshape(x.shape)
        return np.where(np.isfinite(found), np.abs(found - exact) / (allowed * (1 + 1e-6) + 2.0**-149), np.inf)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, *, sign: int = -1) -> np.ndarray:
    """Rotate the pairs (2i, 2i + 1) of each row by its cosines and sines, and copy the numbers for which there are none.

    Args:
        x: ``(rows, head size)``.
        cos, sin: ``(rows, rotary / 2)``.
        sign: of the term ``b sin``; 1 gives the size of the two products.
    """
    y = x.copy()
    rotary = 2 * cos.shape[1]
    a, b = x[:, 0:rotary:2], x[:, 1:rotary:2]
    y[:, 0:rotary:2], y[:, 1:rotary:2] = a * cos + sign * b * sin, b * cos + a * sin
    return y


def hashed(index: np.ndarray, seed: int) -> np.ndarray:
    """A hash of each index, as `mixed` in sandboxed/cuda. Source: Appleby, MurmurHash3, the finalizer."""
    with np.errstate(over="ignore"):
        h = index * np.uint32(0x9E3779B1) + np.uint32(seed & 0xFFFFFFFF)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return h ^ (h >> np.uint32(16))


def drawn(index: np.ndarray, dtype: str, lowest: int, seed: int) -> np.ndarray:
    """Bit patterns of random numbers, of the shape of `index`, with any sign and mantissa, and eight exponents from `lowest` on."""
    h = hashed(index, seed)
    sign, exponent, mantissa = h >> np.uint32(31), (h >> np.uint32(23)) & np.uint32(7), h & np.uint32(0x7FFFFF)
    if dtype == "float16":
        bits = sign << np.uint32(15) | (exponent + np.uint32(15 + lowest)) << np.uint32(10) | mantissa >> np.uint32(13)
        return bits.astype(np.uint16)
    bits = sign << np.uint32(31) | (exponent + np.uint32(127 + lowest)) << np.uint32(23) | mantissa
    return bits if dtype == "float32" else (bits >> np.uint32(16)).astype(np.uint16)


def numbers(bits: Any, dtype: str) -> np.ndarray:
    """Bit patterns of a type as float64, the same shape."""
    bits = np.asarray(bits)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(dtype).astype(np.float64)


def rotations(rng: np.random.Generator) -> list[Rotation]:
    """Plain, odd and drawn shapes in each type, some with unaligned memory, and one with many numbers."""
    shapes = [(shape, rotary, 0) for shape, rotary in (*PLAIN, *ODD)]
    shapes += [((2, 4, 3, 64), 32, shifted) for shifted in range(1, len(BUFFERS) + 1)]
    for most in ((6, 14, 20, 129), (1000, 4, 4, 17), (4, 1000, 4, 17), (4, 4, 4, 2049)):
        *sizes, pairs = (int(rng.integers(max(1, size // 8), size)) for size in most)
        shapes.append(((sizes[0], sizes[1], sizes[2], 2 * pairs), 2 * int(rng.integers(1, pairs + 1)), 0))
    several = [(shape, rotary, dtype, shifted) for shape, rotary, shifted in shapes for dtype in DTYPES]
    several.append(((3, 8, 100, 128), 32, "float16", 0))  # a block of 1024 threads writes 300 numbers in each of them
    return [
        Rotation(shape, rotary, dtype, int(rng.integers(1 << 32)), int(rng.integers(3)), shifted)
        for shape, rotary, dtype, shifted in several
    ]


def watched_rotations(rng: np.random.Generator) -> list[Rotation]:
    """In each type a rotation whose accesses are recorded. Its heads are whole sectors of 32 bytes."""
    sizes = ((5, 8), (5, 10), (7, 14), (4, 9))
    drawn_sizes = [[int(rng.integers(*size)) for size in sizes] for _ in DTYPES]
    return [
        Rotation((batch, heads, sequence, 32 * parts), 16 * parts, dtype, int(rng.integers(1 << 32)), 2, 0, True)
        for (batch, heads, sequence, parts), dtype in zip(drawn_sizes, DTYPES, strict=True)
    ]


# ---- rotary.cu on the processor

TIME_LIMIT_S = 40.0
WARP = 32  # threads that run in step and whose accesses become one request
SECTOR = 32  # bytes: the smallest piece that a GPU fetches
X, POSITIONS, Y = (BUFFERS.index(name) for name in ("x", "positions", "y"))
BIG = Rotation((8, 32, 4096, 128), 64, "float16", 0)
_MAX_PROGRAM, _MAX_ANSWER = 16 << 20, 256 << 20
_CUDA = Path(str(sandboxed.__file__)).resolve().parent / "cuda"
_REPORT = np.dtype(
    [
        *((name, "i8") for name in ("fault", "error")),
        *((name, "i8", 3) for name in ("block", "thread")),
        *((name, "i8") for name in ("buffer", "offset", "size", "is_write")),
        *((name, "i8") for name in ("threads", "most_written", "launches", "wrong_stream", "accesses", "y_bytes")),
    ]
)
ACCESS = np.dtype(
    [
        ("site", "u8"),
        *((name, "u4") for name in ("block", "thread", "offset")),
        *((name, "u1") for name in ("buffer", "size", "is_write", "unused")),
    ]
)
# Of a fault's number in examine_on_host.cpp. The first one is for numbers that are wrong.
_KINDS = ("", "outside", "misaligned", "input", "host", "crash", "time", "host memory")
_NO_DEVICE = {35, 46, 100, 802, 803, 804}  # cudaError_t: no driver, no device, or none that can be used
_WORTH_S, _MOST_LAUNCHES = 1.5, 20_000  # of the launches to time


@dataclass(frozen=True, eq=False)
class Run:
    """The result of one rotation on the processor.

    Attributes:
        kind: "" if the kernel ended, otherwise what stopped it.
        fault: the same as a sentence.
        excess: error of each number as a share of what is allowed; empty if the kernel was stopped.
        y: bits that the kernel wrote.
        accesses: accesses of dtype `ACCESS`, in the sequence in which the threads ran; empty unless they were recorded.
        most_written: the most numbers of y that one thread wrote in one launch.
        launches: number of kernel launches by the one call of rotary_launch.
        on_stream: whether every launch was on the stream that rotary_launch received.
        unguarded: whether it was stopped beyond the end of x or y with more threads than pairs.
    """

    rotation: Rotation
    kind: str = ""
    fault: str = ""
    excess: np.ndarray = field(default_factory=lambda: np.zeros(0))
    y: np.ndarray = field(default_factory=lambda: np.zeros(0))
    accesses: np.ndarray = field(default_factory=lambda: np.zeros(0, ACCESS))
    most_written: int = 0
    launches: int = 1
    on_stream: bool = True
    unguarded: bool = False

    @property
    def right(self) -> bool:
        """Whether the kernel ended and every number is within the tolerance."""
        return not self.kind and bool((self.excess <= 1).all())

    def message(self) -> str:
        """What is wrong."""
        if self.kind:
            return f"{self.rotation}: {self.fault}"
        worst = self.excess.max()
        far = f"the worst {worst:.3g} times as far off as allowed" if np.isfinite(worst) else "some missing or not finite"
        return f"{self.rotation}: {(self.excess > 1).sum()} of {self.rotation.count} numbers wrong, {far}"


def compile_program(source: str, driver: str, launcher: Launcher | None, *, gpu: bool = False) -> bytes:
    """The program made of the text of rotary.cu and a driver of sandboxed/cuda. It is untrusted: run it with `run_program` only.

    Raises:
        EngineError: it does not compile, or contains what a kernel must not; its code is that of `sandboxed.kernel.Rejected`.
    """
    request = {"source": source, "include": str(_CUDA), "driver": str(_CUDA / driver), "gpu": gpu}
    question = json.dumps(request).encode() + b"\n"
    answer = run_isolated(_command(), question, launcher=launcher, time_limit_s=TIME_LIMIT_S, max_bytes=_MAX_PROGRAM)
    if answer[:3] != b"ok ":
        code, _, text = answer[3:].decode(errors="replace").partition(" ")
        raise EngineError(" ".join(text.split())[:400], code=code)
    return answer[3:]


def run_program(program: bytes, question: bytes, launcher: Launcher | None) -> bytes:
    """The answer of a compiled program."""
    message = f"{len(program):<20}".encode() + program + question
    return run_isolated(_command("run"), message, launcher=launcher, time_limit_s=TIME_LIMIT_S, max_bytes=_MAX_ANSWER)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-I", str(Path(str(sandboxed.__file__)).resolve()), *arguments]


def run_kernel(source: str, several: Sequence[Rotation], launcher: Launcher | None = None) -> list[Run]:
    """Compile `source` for the host and run it, as `compile_program` and `run_compiled` do."""
    return run_compiled(compile_program(source, "examine_on_host.cpp", launcher), several, launcher)


def run_compiled(program: bytes, several: Sequence[Rotation], launcher: Launcher | None = None) -> list[Run]:
    """Run a program of `compile_program` on each rotation in sequence. After one that does not end, the others are not run."""
    question = np.array([len(several)], np.int64).tobytes() + b"".join(one.wire() for one in several)
    answer = run_program(program, question, launcher)
    runs: list[Run] = []
    for rotation in several:
        if not answer:
            break
        run, answer = read_run(rotation, answer)
        runs.append(run)
    return runs


def read_run(rotation: Rotation, answer: bytes) -> tuple[Run, bytes]:
    """The first report in an untrusted answer, and the rest of the answer."""
    width, body = WIDTHS[rotation.dtype], answer[_REPORT.itemsize :]
    size = rotation.count * width
    try:
        report = np.frombuffer(answer, _REPORT, 1)[0]
        if report["fault"]:
            return _stopped(rotation, report), body
        if report["y_bytes"] != size:
            raise ValueError
        y = np.frombuffer(body, np.uint32 if width == 4 else np.uint16, rotation.count)
        accesses = np.frombuffer(body, ACCESS, report["accesses"], size)
        if report["accesses"] < 0:
            raise ValueError
    except (ValueError, IndexError):
        raise EngineError("the kernel's process sent an invalid answer") from None
    left = body[size + accesses.nbytes :]
    if error := int(report["error"]):
        reason = (
            ": a grid or block that CUDA rejects (a grid's y and z end at 65535, a block at 1024 threads)" if error == 9 else ""
        )
        return Run(rotation, "rejected", f"rotary_launch returned the CUDA error {error}{reason}"), left
    written, launches = (int(report[name]) for name in ("most_written", "launches"))
    return Run(rotation, "", "", rotation.excess(y), y, accesses, written // width, launches, not report["wrong_stream"]), left


def _stopped(rotation: Rotation, report: np.void) -> Run:
    """A fault in words: which thread, what it did, and where."""
    kind = _KINDS[int(report["fault"])]
    block, thread = (f"({', '.join(str(int(n)) for n in report[name])})" for name in ("block", "thread"))
    size, which, write = int(report["size"]), int(report["buffer"]), report["is_write"]
    buffer = BUFFERS[which] if 0 <= which < len(BUFFERS) else ""
    width = WIDTHS[rotation.dtype] if which in (X, Y) else 4
    place = f"{buffer}[{int(report['offset']) // width}]" if buffer else "memory far from the tensors"
    access = f"thread {thread} of block {block} {'writes' if write else 'reads'} {size} bytes at {place}"
    counts = {"cos": rotation.rows * rotation.rotary // 2, "positions": rotation.shape[0] * rotation.shape[2]}
    count = counts.get("cos" if buffer == "sin" else buffer, rotation.count)
    fault = {
        "outside": f"{access}{f', and {buffer} has {count} numbers' if buffer else ''}",
        "misaligned": f"{access}, an address that is not a multiple of {size}",
        "input": f"{access}, which is an input",
        "host": f"rotary_launch itself touches {buffer}: that memory is the GPU's, only a kernel may",
        "host memory": f"{access}: it is the host's memory, which no GPU reaches",
        "crash": f"thread {thread} of block {block} crashed (signal {int(report['error'])})",
        "time": f"it was stopped after 5 s of work, in thread {thread} of block {block}",
    }[kind]
    beyond = which in (X, Y) and report["offset"] >= rotation.count * width and report["threads"] > rotation.count // 2
    return Run(rotation, kind, fault, unguarded=kind == "outside" and bool(beyond))


# ---- the accesses of a run's threads, counted as Nsight Compute does on a GPU


@dataclass(frozen=True)
class Traffic:
    """Accesses of the threads of one launch to memory, summed up.

    Attributes:
        read_once, written_once: whether each number of x was read, and each number of y written, exactly once.
        used: share of the fetched and stored 32-byte sectors that the requests of a warp needed, 1.0 at best.
        width: bytes of x and y that a thread moves at once, on average; 16 is the most that CUDA can.
        table_reads: average number of reads of each number of cos and sin that a token needs, for each of its heads.
    """

    read_once: bool
    written_once: bool
    used: float
    width: float
    table_reads: float


def traffic(run: Run) -> Traffic:
    """The traffic of a run whose accesses were recorded."""
    found, rotation = run.accesses, run.rotation
    big, tables = found[np.isin(found["buffer"], (X, Y))], found[~np.isin(found["buffer"], (X, Y, POSITIONS))]
    size = rotation.count * WIDTHS[rotation.dtype]
    wanted = 4 * rotation.heads * rotation.rotary
    return Traffic(
        read_once=_each_once(big[big["is_write"] == 0], X, size),
        written_once=_each_once(big[big["is_write"] == 1], Y, size),
        used=_used(big),
        width=float(big["size"].mean()) if len(big) else 0.0,
        table_reads=float(tables["size"].sum()) / wanted,
    )


def requests(found: np.ndarray) -> np.ndarray:
    """For each access the number of its request, int64 ``(accesses,)``.

    The threads of a warp run in step: their n-th accesses by one instruction form one request.

    Args:
        found: accesses of dtype `ACCESS`, ``(accesses,)``.
    """
    order = np.lexsort((found["site"], found["thread"], found["block"]))
    keys = found[order]
    begins = _begins(keys["block"], keys["thread"], keys["site"])
    place = np.arange(len(keys))
    nth = np.empty(len(keys), np.int64)
    nth[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return _numbered(found["block"], found["thread"] // WARP, found["site"], nth)


def _numbered(*columns: np.ndarray) -> np.ndarray:
    """A number for each row of `columns`, the same for equal rows."""
    order = np.lexsort(columns)
    numbered = np.empty(len(order), np.int64)
    numbered[order] = np.cumsum(_begins(*(column[order] for column in columns))) - 1
    return numbered


def _begins(*columns: np.ndarray) -> np.ndarray:
    """Whether each row differs from the previous one."""
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return begins


def _used(found: np.ndarray) -> float:
    if not len(found):
        return 0.0
    first = found["offset"].astype(np.int64) // SECTOR
    last = (found["offset"].astype(np.int64) + found["size"] - 1) // SECTOR
    touched = _numbered(np.tile(requests(found), 2), np.tile(found["buffer"], 2), np.concatenate([first, last]))
    return float(found["size"].sum() / (SECTOR * (touched.max() + 1)))


def _each_once(found: np.ndarray, buffer: int, size: int) -> bool:
    """Whether each byte of a buffer of `size` bytes was accessed exactly once, and no other buffer was."""
    order = np.argsort(found["offset"])
    begin = found["offset"][order].astype(np.int64)
    ends = begin + found["size"][order]
    whole = bool(len(found)) and begin[0] == 0 and ends[-1] == size and bool((begin[1:] == ends[:-1]).all())
    return whole and bool((found["buffer"] == buffer).all())


# ---- on a GPU


def usable_gpu() -> bool:
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
    launcher: Launcher | None = None

    @classmethod
    def compile(cls, source: str, launcher: Launcher | None = None) -> GpuKernel:
        """Compile the text of rotary.cu."""
        return cls(compile_program(source, "time_on_gpu.cu", launcher, gpu=True), launcher)

    def wrong_numbers(self, rotation: Rotation, *, step: int = 1) -> int:
        """Number of wrong values in every `step`-th head after five launches, in both sets of x and y.

        Raises:
            EngineError: CUDA rejected the kernel, or its process sent an invalid answer.
            ExaminerFault: the GPU is no longer available.
        """
        heads = np.arange(rotation.seed % step, rotation.heads, step)
        bits = np.frombuffer(
            self._ask(rotation, 5, int(heads[0]), step), np.uint32 if WIDTHS[rotation.dtype] == 4 else np.uint16
        )
        if bits.size != 2 * len(heads) * rotation.shape[3]:
            raise EngineError("the kernel's process sent an invalid answer")
        sets = zip((0, 1), (4, 3), bits.reshape(2, -1), strict=True)  # the last launches of each set
        return sum(int((rotation.excess(y, heads, which=which, first=4 * last) > 1).sum()) for which, last, y in sets)

    def launch_s(self, rotation: Rotation, *, is_copy: bool = False) -> float:
        """Seconds of one launch, or of a copy of the same number of bytes, by the examiner's clock."""

        def clocked(launches: int) -> float:
            started = time.perf_counter()
            self._ask(rotation, launches, 1 << 40, 1, is_copy=is_copy)
            return time.perf_counter() - started

        return per_launch(clocked)

    def _ask(self, rotation: Rotation, launches: int, first: int, step: int, *, is_copy: bool = False) -> bytes:
        """Some heads of y after `launches` launches. The question is `Question` in sandboxed/cuda."""
        question = np.array([*rotation.sizes(), launches, first, step, is_copy], np.int64).tobytes()
        answer = run_program(self.program, question, self.launcher)
        error = int(np.frombuffer(answer, np.int64, 1)[0]) if len(answer) >= 8 else -1
        if error in _NO_DEVICE:
            raise ExaminerFault(f"the GPU has gone: CUDA error {error}")
        if error:
            raise EngineError(f"on the GPU the kernel failed with CUDA error {error}")
        return answer[8:]


def per_launch(clocked: Callable[[int], float]) -> float:
    """The time of one launch, from the times of 2 and of many launches (the faster of two runs each), without the cost of the process."""
    none = min(clocked(2) for _ in range(2))
    guess = max((clocked(200) - none) / 198, 1e-6)
    many = int(np.clip(_WORTH_S / guess, 200, _MOST_LAUNCHES))
    return max(min(clocked(many) for _ in range(2)) - none, 1e-9) / (many - 2)


def reference_s(source: str, rotation: Rotation, launcher: Launcher | None) -> float:
    """Seconds of one launch of the reference kernel, whose failure is the examiner's fault."""
    with ours():
        return GpuKernel.compile(source, launcher).launch_s(rotation)
