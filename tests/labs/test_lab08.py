"""Lab 08 against its reference, other right answers, mistakes that learners make, cheats, and hostile submissions."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import nbformat
import numpy as np
import pytest

from course_lib import labs
from course_lib.errors import BackendUnavailable, EngineError, ExaminerFault
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs.lab08_plugin import lab
from course_lib.labs.lab08_plugin import reference as lab08_reference
from course_lib.labs.lab08_plugin.figures import angle_figure, sectors_figure
from course_lib.labs.lab08_plugin.judge import contract as lab08_contract
from course_lib.labs.lab08_plugin.judge import gpu, kernel_cases
from course_lib.labs.lab08_plugin.judge import kernel as lab08_kernel
from course_lib.labs.lab08_plugin.judge.judgment import (
    MOST_LAUNCHES,
    MOST_OF_THREAD,
    judge_memory,
    judge_rotations,
    judge_speed,
    narrowed,
)
from course_lib.labs.lab08_plugin.judge.kernel import ACCESS, Run, run_kernel
from course_lib.labs.lab08_plugin.judge.kernel_cases import Case
from course_lib.labs.lab08_plugin.judge.memory import WARP, requests, traffic
from course_lib.labs.lab08_plugin.sandboxed import compile_kernel
from course_lib.labs.lab08_plugin.sandboxed.compile_kernel import first_error
from course_lib.migration.tables.bindings import BindingsUnavailable, NoNetwork
from course_lib.plugins import compilers, rope
from course_lib.plugins.compilers import SOURCE
from tests import slow_cases
from tests.plugins import rope_cases

LAB = labs.find("lab08")
ROOT = Path(__file__).resolve().parents[2]
FULL = {"kernel": "full", "memory": "full", "plugin": "full"}


def written_by(notebook: Path, file: str) -> str:
    """What a notebook's cell writes."""
    cells = nbformat.read(notebook, as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.source.startswith(f"%%writefile {file}\n"))
    return source.partition("\n")[2]


KERNEL = written_by(ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb", "rope.cu")
PLUGIN = written_by(ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb", "rope_plugin.py")


def changed(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


SCALAR = changed(KERNEL, ("      aligned && n.head_size / 2", "      false && aligned && n.head_size / 2"))


@pytest.fixture(scope="module")
def contract() -> None:
    """Skip where the bindings can neither be found nor fetched."""
    try:
        lab08_contract._bindings()
    except BindingsUnavailable as absent:
        pytest.skip(str(absent))


@pytest.fixture
def nvcc() -> None:
    """Skip where NVIDIA's compiler is missing."""
    try:
        compilers.nvcc()
    except BackendUnavailable as absent:
        pytest.skip(str(absent))


@pytest.fixture
def submission(tmp_path, monkeypatch):
    """Examine a kernel or a plugin; on few kernel_cases, to be quick."""

    def few(rng):
        shapes = [
            ((2, 16, 4, 64), 0),
            ((3, 5, 7, 64), 0),
            ((1, 17, 3, 66), 0),
            ((1, 70000, 1, 2), 0),
            ((2, 3, 4, 64), 1),
        ]
        return [
            Case(shape, dtype, interleaved, int(rng.integers(1 << 32)), 1, shifted)
            for shape, shifted in shapes
            for dtype in ("float32", "float16", "bfloat16")
            for interleaved in (False, True)
        ]

    def small(rng):
        sizes = [("float32", False), ("float32", True), ("float16", False), ("float16", True)]
        return [Case((5, 4, 5, 128), dtype, flag, int(rng.integers(1 << 32)), watched=True) for dtype, flag in sizes]

    monkeypatch.setattr(lab, "cases", few)
    monkeypatch.setattr(lab, "watched_cases", small)
    monkeypatch.setattr(lab, "large_cases", lambda rng: [])

    def examine(kernel: str | None = None, plugin: str | None = None, only: str | None = None, **options) -> Examination:
        if kernel is not None:
            (tmp_path / "rope.cu").write_text(kernel)
        if plugin is not None:
            (tmp_path / "rope_plugin.py").write_text(plugin)
        return LAB.examine(
            tmp_path, Examiner(**options), only=only or (None if kernel and plugin else "plugin" if plugin else None)
        )

    return examine


def tiers(examined: Examination) -> dict[str, str]:
    return {outcome.task.id: outcome.tier for outcome in examined.outcomes if outcome.task.id != "plugin" or outcome.points}


def outcome(examined: Examination, task: str):
    return next(outcome for outcome in examined.outcomes if outcome.task.id == task)


# ---- whole submissions


def test_reference_has_full_marks(tmp_path, contract):
    LAB.write_reference(tmp_path)
    examined = LAB.examine(tmp_path, Examiner())
    assert tiers(examined) == FULL, examined.outcomes
    assert examined.points == examined.max_points == 10
    assert examined.figures["rotations"] == examined.figures["right"] > 100


def test_solution_has_full_marks(tmp_path, contract):
    """A thread for each pack, where the reference turns several heads in one."""
    (tmp_path / "rope.cu").write_text(KERNEL)
    (tmp_path / "rope_plugin.py").write_text(PLUGIN)
    assert tiers(LAB.examine(tmp_path, Examiner())) == FULL


def test_untouched_release_has_none(tmp_path, contract):
    released = ROOT / "labs" / LAB.name / f"{LAB.name}.ipynb"  # its cells with a place for a solution write the two files
    for name in LAB.artifacts:
        (tmp_path / name).write_text(written_by(released, name))
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0 and examined.max_points == 10
    assert all("still empty" in found.message + found.hint for found in examined.outcomes), examined.outcomes


def test_nothing_handed_in_has_none(tmp_path):
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0
    assert [found.message.split(" is missing")[0] for found in examined.outcomes] == ["rope.cu", "rope.cu", "rope_plugin.py"]
    assert all(found.hint for found in examined.outcomes)


@pytest.mark.skipif(bool(sandbox.problem()), reason="no sandbox works here")
def test_judge_in_its_sandbox(tmp_path, contract):
    LAB.write_reference(tmp_path)
    verdict = judge(LAB, tmp_path)
    assert (verdict.score, verdict.fault) == (10, ""), verdict.outcomes
    json.dumps(verdict.to_json(), allow_nan=False)


# ---- kernels: other right ones, and mistakes


def one_result_a_thread() -> str:
    """A kernel whose threads make one number each."""
    body = """
template <typename T>
__global__ void rotate(const T* x, const float* cos, const float* sin, T* y, bool interleaved, Sizes n) {
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n.batch * n.sequence * n.heads * n.head_size;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t half = n.head_size / 2, at = i % n.head_size, pair = interleaved ? at / 2 : at % half;
    const bool is_b = interleaved ? at % 2 : at >= half;
    const int64_t table = i / n.head_size / n.heads % n.sequence * half + pair, apart = interleaved ? 1 : half;
    const float mine = widen(x[i]), other = widen(x[is_b ? i - apart : i + apart]);
    y[i] = narrow<T>(mine * __ldg(cos + table) + (is_b ? 1 : -1) * other * __ldg(sin + table));
  }
}
"""
    launch = """
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(40);
  config.blockDim = dim3(128);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, rotate<T>, x, cos, sin, y, interleaved, n);
"""
    first, _, rest = KERNEL.partition("// ### BEGIN SOLUTION")
    _, _, rest = rest.partition("// ### END SOLUTION")
    second, _, rest = rest.partition("// ### BEGIN SOLUTION")
    return first + body + second + launch + rest.partition("// ### END SOLUTION")[2]


def in_parts(parts: str) -> str:
    """The solution's kernel, launched once for each of several parts of the batch."""
    launched = """  const int64_t each = n.sequence * n.heads * n.head_size, parts = PARTS;
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t first = n.batch * part / parts, last = n.batch * (part + 1) / parts;
    const int64_t threads = (last - first) * n.sequence * n.heads * (half / kWidth);
    if (threads == 0) continue;
    config.gridDim = dim3((threads + 255) / 256);
    const auto error = cudaLaunchKernelEx(&config, kernel, x + first * each, cos, sin, y + first * each, threads,
                                          int(n.sequence), int(n.heads), int(half));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
"""
    once = """  return cudaLaunchKernelEx(&config, kernel, x, cos, sin, y, threads, int(n.sequence),
                            int(n.heads), int(half));
"""
    return changed(KERNEL, (once, launched.replace("PARTS", parts)))


# For each head of each token a grid of its own, so that no thread needs to know its batch, token or head.
A_LAUNCH_FOR_EACH_HEAD = changed(
    KERNEL,
    ("  const int64_t row = thread / packs;\n", "  const int64_t row = 0;\n"),
    ("  const int64_t table = row / heads % sequence * half + pair;\n", "  const int64_t table = pair;\n"),
    (
        "  return cudaLaunchKernelEx(&config, kernel, x, cos, sin, y, threads, int(n.sequence),\n"
        "                            int(n.heads), int(half));\n",
        """  const int64_t packs = half / kWidth;
  config.gridDim = dim3((packs + 255) / 256);
  config.blockDim = dim3(packs < 256 ? packs : 256);
  for (int64_t row = 0; row < n.batch * n.sequence * n.heads; ++row) {
    const int64_t at = row * n.head_size, table = row / n.heads % n.sequence * half;
    const auto error = cudaLaunchKernelEx(&config, kernel, x + at, cos + table, sin + table, y + at, packs, 1, 1, int(half));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
""",
    ),
)
MANY_LAUNCHES = {
    "for each head of each token": (A_LAUNCH_FOR_EACH_HEAD, "made 70000 launches (float32, shape (1, 70000, 1, 2)"),
    "for each sequence": (in_parts("n.batch"), "made 5 launches (float32, shape (5, 4, 5, 128)"),
}


@pytest.mark.parametrize("name", MANY_LAUNCHES)
def test_cheat_a_launch_for_each_part_of_the_shape(submission, name):
    kernel, said = MANY_LAUNCHES[name]
    examined = submission(kernel)
    assert tiers(examined) == {"kernel": "partial", "memory": "none"}, examined.outcomes
    assert said in outcome(examined, "kernel").message and "at most 4 are allowed" in outcome(examined, "memory").message
    assert all("One grid covers all batches" in outcome(examined, task).hint for task in ("kernel", "memory"))


def test_four_launches_are_permitted(submission):
    assert tiers(submission(in_parts("4"))) == {"kernel": "full", "memory": "full"}


def test_many_launches_lose_the_memory_task_on_a_gpu_too(submission, played, monkeypatch):
    played()
    monkeypatch.setattr(gpu.GpuKernel, "launch_s", lambda self, case, **_: 1e-3)
    monkeypatch.setattr(gpu, "reference_s", lambda case, launcher: (1e-3, 1e-3))
    for parts, tier in (("4", "full"), ("n.batch", "none")):
        assert outcome(submission(in_parts(parts), only="memory"), "memory").tier == tier


def test_every_size_of_a_recorded_case_shows_a_launch_for_each_part():
    for seed in range(20):
        assert all(min(case.shape) > MOST_LAUNCHES for case in kernel_cases.watched_cases(np.random.default_rng(seed)))


def in_a_loop(kernel: str, blocks: int, threads: int) -> str:
    """The solution's kernel with a fixed grid, whose threads share all packs in a loop."""
    return changed(
        kernel,
        ("  if (thread >= threads) return;\n", ""),
        (
            "  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n",
            "  const int64_t begin = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;\n"
            "  for (int64_t thread = begin; thread < threads; thread += step) {\n",
        ),
        ("*reinterpret_cast<Numbers*>(y + second) = out[1];\n", "*reinterpret_cast<Numbers*>(y + second) = out[1];\n  }\n"),
        ("dim3((threads + 255) / 256)", f"dim3({blocks})"),
        ("dim3(256)", f"dim3({threads})"),
    )


def the_first_warp(begin: str) -> str:
    """The solution's kernel with all its threads, of which the first warp does more than the others."""
    return changed(
        KERNEL,
        ("  if (thread >= threads) return;\n", f"  const int64_t own = thread;\n{begin}"),
        ("thread / packs", "t / packs"),
        ("thread % packs", "t % packs"),
        ("*reinterpret_cast<Numbers*>(y + second) = out[1];\n", "*reinterpret_cast<Numbers*>(y + second) = out[1];\n  }\n"),
    )


ALL = "  if (own >= 32) return;\n  for (int64_t t = own; t < threads; t += 32) {\n"
HALF = """  const bool first = own < 32 && threads >= 128;
  if (!first && own >= (threads < 128 ? threads : threads / 2)) return;
  for (int64_t t = own; t < threads; t += !first ? threads : t < threads / 2 ? threads / 2 : 32) {
"""
FEW_THREADS = {
    "one warp": (in_a_loop(KERNEL, 1, 32), ["memory", None], "one thread wrote"),
    "one block": (in_a_loop(KERNEL, 1, 1024), ["memory", None], "one thread wrote"),
    "one block in each of four launches": (in_a_loop(in_parts("4"), 1, 1024), [None], "one thread in each of 4 launches wrote"),
    "one warp in each of many launches": (in_a_loop(in_parts("n.batch"), 1, 32), [None], "one thread in each of 4 launches"),
    "the first warp of many": (the_first_warp(ALL), [None], "one thread wrote"),
    "the first warp for half of the pairs": (the_first_warp(HALF), [None], "one thread wrote"),
}


@pytest.mark.parametrize("name", FEW_THREADS)
def test_cheat_few_threads_for_many_numbers(submission, monkeypatch, name):
    monkeypatch.setattr(lab, "large_cases", kernel_cases.large_cases)
    kernel, tasks, said = FEW_THREADS[name]
    for only in tasks:
        examined = submission(kernel, only=only)
        assert examined.points == 0, examined.outcomes
        found = outcome(examined, "memory")
        assert said in found.message and "at most 256 are allowed" in found.message and "more threads" in found.hint, found


@pytest.mark.parametrize("name", ["as many as the text says", "four launches of a grid that grows"])
def test_threads_with_several_packs_are_permitted(submission, monkeypatch, name):
    monkeypatch.setattr(lab, "large_cases", kernel_cases.large_cases)
    kernel = in_parts("4") if name.startswith("four") else in_a_loop(KERNEL, 16, 256)
    assert tiers(submission(kernel)) == {"kernel": "full", "memory": "full"}


def test_the_text_states_the_bound_on_threads():
    cells = nbformat.read(ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb", as_version=4).cells
    (text,) = (cell.source for cell in cells if cell.source.startswith("## Task 1"))
    assert f"at most {MOST_OF_THREAD} numbers of `y`" in text and f"at least {WARP} threads" in text


def test_a_large_case_is_too_large_for_one_block():
    for seed in range(50):
        found = kernel_cases.large_cases(np.random.default_rng(seed))
        assert len({(case.dtype, case.interleaved) for case in found}) == 6
        assert all(1024 * MOST_OF_THREAD < np.prod(case.shape) < 400_000 and case.shape[3] <= MOST_OF_THREAD for case in found)
        for one, other in zip(found[::2], found[1::2], strict=True):
            assert sorted(case.shape[3] % 32 == 0 for case in (one, other)) == [False, True]


def test_arithmetic_in_float64_is_permitted(submission):
    double = changed(
        KERNEL,
        ("const float x_a = widen", "const double x_a = widen"),
        ("narrow<T>(x_a * c - x_b * s)", "narrow<T>(float(x_a * c - x_b * s))"),
        ("narrow<T>(x_b * c + x_a * s)", "narrow<T>(float(x_b * c + x_a * s))"),
    )
    assert outcome(submission(double, only="kernel"), "kernel").tier == "full"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "memory", "words"),
    [
        (SCALAR, "partial", "16 bytes at a time"),
        (one_result_a_thread(), "partial", "loads each number once"),
        (changed(KERNEL, ("16 / sizeof(T)", "8 / sizeof(T)")), "partial", "16 bytes at a time"),
    ],
    ids=["a pair a thread", "a number a thread", "vectors of 8 bytes"],
)
def test_other_right_kernels(submission, kernel, memory, words):
    examined = submission(kernel)
    assert tiers(examined) == {"kernel": "full", "memory": memory}, examined.outcomes
    assert words in outcome(examined, "memory").hint


# the change, tiers of kernel and memory, words of the message, words of the hint
MISTAKES = {
    "no thread too many is sent home": (
        [("  if (thread >= threads) return;\n", "")],
        "none",
        "none",
        "no bounds guard",
        "Compare a thread's number",
    ),
    "vectors without asking for alignment": (
        [("aligned && n.head_size", "n.head_size")],
        "partial",
        "full",
        "not a multiple of",
        "multiple of 16",
    ),
    "vectors without asking for the head size": (
        [("aligned && n.head_size / 2 % kWide == 0", "aligned")],
        "partial",
        "full",
        "not a multiple of",
        "multiple of 16",
    ),
    "only halves": (
        [("2 * i + 1 : i + kWidth", "i + kWidth : i + kWidth"), ("kInterleaved ? 2 * i : i,", "i,")],
        "partial",
        "none",
        "interleaved",
        "2i + 1",
    ),
    "rounded in between": (
        [("narrow<T>(x_a * c - x_b * s)", "narrow<T>(widen(narrow<T>(x_a * c)) - widen(narrow<T>(x_b * s)))")],
        "partial",
        "none",
        "times as far off",
        "round once",
    ),
    "the new a turns b": (
        [("narrow<T>(x_b * c + x_a * s)", "narrow<T>(x_b * c + widen(out[a / kWidth].value[a % kWidth]) * s)")],
        "none",
        "none",
        "numbers wrong",
        "needs the old x_a",
    ),
    "heads forgotten in the position": (
        [("row / heads % sequence", "row % sequence")],
        "none",
        "none",
        "numbers wrong",
        "row / heads % sequence",
    ),
    "table rows of a whole head": (
        [("% sequence * half + pair", "% sequence * 2 * half + pair")],
        "none",
        "none",
        "at cos[",
        "head_size / 2 numbers in a row",
    ),
    "blocks rounded down": ([("(threads + 255) / 256", "threads / 256")], "partial", "none", "some missing", "never written"),
    "blocks in the grid's y": (
        [
            ("dim3((threads + 255) / 256)", "dim3(1, (threads + 255) / 256)"),
            ("int64_t(blockIdx.x)", "int64_t(blockIdx.y)"),
            ("dim3(256)", "dim3(1)"),
            ("(threads + 255) / 256", "threads"),
        ],
        "partial",
        "none",
        "error 9",
        "grid's x",
    ),
    "angles instead of tables": (
        [
            (
                "const float c = cos[table + i], s",
                "const float c = cosf(float(row / heads % sequence) * powf(1e4f, float(-pair - i) / half)), s",
            )
        ],
        "none",
        "none",
        "numbers wrong",
        "by hand",
    ),
    "a thread for each head": (
        [
            ("const int64_t row = thread / packs;", "const int64_t row = thread;"),
            ("  const int pair = thread % packs * kWidth;\n", "  for (int pair = 0; pair < half; pair += kWidth) {\n"),
            ("*reinterpret_cast<Numbers*>(y + second) = out[1];\n", "*reinterpret_cast<Numbers*>(y + second) = out[1];\n  }\n"),
            ("n.heads * (half / kWidth)", "n.heads"),
        ],
        "full",
        "none",
        "of the sectors",
        "neighbors",
    ),
    "every thread rotates a whole block": (
        [
            (
                "  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;",
                "  const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x / 2;",
            ),
            ("(threads + 255) / 256", "(threads + 127) / 128"),
            ("* blockDim.x +", "* (blockDim.x / 2) +"),
        ],
        "full",
        "none",
        "more than once",
        "Which other thread writes",
    ),
    "a semicolon forgotten": (
        [("Numbers out[2];", "Numbers out[2]")],
        "none",
        "none",
        "does not compile. Line 5",
        "first error",
    ),
}


@pytest.mark.parametrize("name", slow_cases.after(7, MISTAKES))
def test_mistakes(submission, name):
    edits, kernel, memory, said, hint = MISTAKES[name]
    examined = submission(changed(KERNEL, *edits))
    assert tiers(examined) == {"kernel": kernel, "memory": memory}, examined.outcomes
    found = outcome(examined, "kernel" if kernel != "full" else "memory")
    assert said in found.message and hint in found.hint, found


def test_a_forgotten_stream_costs_points(submission):
    examined = submission(changed(KERNEL, ("  config.stream = stream;\n", "")), only="kernel")
    found = outcome(examined, "kernel")
    assert (found.tier, found.points) == ("partial", 2) and "not launched on the stream" in found.message
    assert "config.stream = stream" in found.hint


def test_the_case_that_does_not_end_is_named(submission):
    """It is the fifth of six: what comes after it is counted, and neither taken for wrong nor for the first failure."""
    loop = "  if (heads == 7) for (volatile int i = 0;;) i = 1;\n  using Numbers"
    found = outcome(submission(changed(KERNEL, ("  using Numbers", loop)), only="kernel"), "kernel")
    assert "shape (3, 5, 7, 64)" in found.message and "was stopped after 5 s" in found.message, found
    assert "cases after it were not run" in found.message and "each loop" in found.hint


def run_of(shape, kind="", wrong=1, **named) -> Run:
    return Run(Case(shape, "float32", False, 1), kind and "it failed", kind, 2.0, wrong, np.zeros(0, ACCESS), 1, **named)


def test_the_simplest_case_that_ran_is_shown_first():
    runs = [run_of((1, 1, 1, 2), "ended"), run_of((2, 3, 4, 8)), run_of((2, 2, 2, 8)), run_of((1, 1, 1, 4), wrong=0)]
    assert "(2, 2, 2, 8)" in judge_rotations(runs).message
    assert "(2, 3, 4, 8)" in judge_rotations([*runs, run_of((2, 3, 4, 8), "outside")]).message


@pytest.mark.parametrize(
    ("wrong_first", "hint"), [(0, "Only y_b is wrong"), (3, "Only y_a is wrong"), (1, "numbers from the tables")]
)
def test_hints_name_the_half_of_a_pair_that_is_wrong(wrong_first, hint):
    assert hint in judge_rotations([run_of((1, 2, 3, 8), wrong=3, wrong_first=wrong_first)]).hint


def test_bytes_are_told_of_the_kernel_that_moves_them(submission):
    """FP32 was said to move 2 bytes at a time: the width was that of another case."""
    examined = submission(changed(KERNEL, ("aligned && n.head", "sizeof(T) == 4 && aligned && n.head")), only="memory")
    message = outcome(examined, "memory").message
    assert "float16, halves: threads ask for 2 bytes" in message and "float32, halves: threads" not in message


def test_another_way_to_launch_is_explained(submission):
    triple = changed(
        KERNEL, ("  return cudaLaunchKernelEx(&config, kernel, x,", "  kernel<<<config.gridDim, config.blockDim>>>(x,")
    )
    found = outcome(submission(triple, only="kernel"), "kernel")
    assert "<<<...>>>" in found.message and "cudaLaunchKernelEx" in found.message and "lecture 9" in found.hint
    assert outcome(submission("// not kernel<<<1, 1>>>()\n" + KERNEL, only="kernel"), "kernel").tier == "full"


# ---- what the compiler made

WIDE = {"ld 16": 2, "st 16": 2, "ld 4": 8}


@pytest.mark.parametrize(
    ("compiled", "said"),
    [
        ({"a": WIDE}, ""),
        ({"a": WIDE, "scalar": {"ld 4": 4, "st 4": 2}}, ""),
        ({"both paths in one": {"ld 16": 2, "st 16": 2, "ld 4": 4, "st 4": 2}}, ""),
        ({"I6__half": {"ld 16": 2, "st 16": 1, "st 2": 7}}, "1 store(s) of 16 bytes and 7 narrower"),
        ({"a": WIDE, "I6__half": {"ld 16": 2, "st 2": 16}}, "float16 kernel 0 store(s)"),
        ({"a": WIDE, "I6__half": {"ld 2": 2, "st 2": 2}}, "no store of 16 bytes for float16"),
        ({"a": WIDE, "I13__nv_bfloat16": {**WIDE, "local": 12}}, "bfloat16 kernel into local memory"),
        ({}, "no store of 16 bytes for any type"),
    ],
)
def test_what_a_compiler_made_is_judged(compiled, said):
    problem = narrowed(compiled)
    assert said in problem[0] if said else problem is None


def test_what_nvcc_made_of_a_submission_decides(submission, nvcc):
    """A cheat: wide on the host, where accesses are watched, and narrow on a GPU."""
    only_here = "#ifdef ROPE_ON_HOST\n  constexpr int kWide = 16 / sizeof(T);\n#else\n  constexpr int kWide = 1;\n#endif\n"
    found = outcome(
        submission(changed(KERNEL, ("  constexpr int kWide = 16 / sizeof(T);\n", only_here)), only="memory"), "memory"
    )
    assert (found.tier, found.points) == ("partial", 1.5) and "no store of 16 bytes" in found.message
    not_cuda = "\n#ifndef ROPE_ON_HOST\nint rope_it = nothing;\n#endif\n"
    found = outcome(submission(KERNEL + not_cuda, only="memory"), "memory")
    assert found.tier == "partial" and "With nvcc" in found.message and "Line" in found.message


def test_an_array_indexed_at_run_time_is_seen(submission, nvcc):
    at_run_time = changed(
        KERNEL,
        ("template <typename T, int kWidth, bool kInterleaved>\n", "template <typename T, int kWidth>\n"),
        ("rotate(const T* x,", "rotate(bool kInterleaved, const T* x,"),
        ("interleaved ? rotate<T, kWidth, true> : rotate<T, kWidth, false>", "rotate<T, kWidth>"),
        ("kernel, x, cos", "kernel, interleaved, x, cos"),
        ("  for (int i = 0; i < kWidth; ++i) {", "#pragma unroll 1\n  for (int i = 0; i < kWidth; ++i) {"),
    )
    found = outcome(submission(at_run_time, only="memory"), "memory")
    assert found.tier == "partial" and "local memory" in found.message and "template argument" in found.hint


@pytest.mark.parametrize("code", ["missing", "line", "compile", ""])
def test_without_nvcc_the_message_says_what_was_not_judged(submission, monkeypatch, code):
    """It is missing, or it fails on the course's own kernel as well."""

    def absent(*_):
        raise EngineError("rope.cu cannot be compiled: nvcc is not installed on this machine", code=code)

    monkeypatch.setattr(lab, "compile_ptx", absent)
    found = outcome(submission(KERNEL, only="memory"), "memory")
    assert found.tier == "full" and "nvcc is not installed" in found.message


@pytest.mark.parametrize("code", ["line", "compile", "call", "other", ""])
def test_what_nvcc_rejects_is_the_submissions_error(submission, monkeypatch, code):
    """It compiles the course's own kernel, so no failure of another one means that nvcc is missing."""

    def compile_ptx(source, launcher):
        if source == SOURCE.read_text():
            return ""
        raise EngineError("rope.cu does not compile: static assertion failed", code=code)

    monkeypatch.setattr(lab, "compile_ptx", compile_ptx)
    found = outcome(submission(KERNEL, only="memory"), "memory")
    assert (found.tier, found.points) == ("partial", 1.5)
    assert "With nvcc, rope.cu does not compile: static assertion failed" in found.message and "not judged" not in found.message


NVCC_FAILS = {
    "an error in another file": ("using Bad = std::make_unsigned<float>::type;", "make_unsigned"),
    "an error in a header that asserts": (
        "static int rope_bad = std::is_same_v<float>;",
        "With nvcc, rope.cu does not compile",
    ),
    "a word that only nvcc reads": (
        '#define CAT(a, b) a##b\ninline void rope_q() { CAT(as, m)(""); }',
        "With nvcc, rope.cu contains 'asm'",
    ),
    "templates without end": (
        "template <class T> struct F { using type = typename F<F<T>>::type; };\nusing Bad = F<int>::type;",
        "With nvcc, rope.cu does not compile",
    ),
}


@pytest.mark.parametrize("name", slow_cases.after(2, NVCC_FAILS))
def test_an_error_that_only_nvcc_finds_costs_points(submission, nvcc, name):
    """A cheat: nvcc, which would see narrow stores, does not come that far."""
    text, said = NVCC_FAILS[name]
    kernel = changed(KERNEL, ('#include "rope.h"\n', '#include <type_traits>\n#include "rope.h"\n'))
    found = outcome(submission(f"{kernel}\n#ifndef ROPE_ON_HOST\n{text}\n#endif\n", only="memory"), "memory")
    assert (found.tier, found.points) == ("partial", 1.5) and said in found.message, found


# ---- kernels that cheat, and hostile ones


@pytest.mark.parametrize(
    ("listing", "check", "said"),
    [
        ("  movl %eax, %ebx\n#APP\n  syscall\n#NO_APP\n", compile_kernel._check_listing, "assembler"),
        ("  [ 4] .init_array       INIT_ARRAY      0000", compile_kernel._check_sections, r"section \.init_array"),
        ("  [11] .ctors            PROGBITS        0000", compile_kernel._check_sections, r"section \.ctors"),
        ("  [ 7] rope_own          PROGBITS        0000", compile_kernel._check_sections, "section rope_own"),
        ("   4:\tsyscall", compile_kernel._check_instructions, "instruction syscall"),
        ("   4:\tlock int $0x80", compile_kernel._check_instructions, "instruction int"),
        ("   4:\twrfsbase %rax", compile_kernel._check_instructions, "instruction wrfsbase"),
        ("   4:\tcall   *%rdx", compile_kernel._check_instructions, "instruction call"),
        ("   4:\tnotrack jmp *0x8(%rax,%rcx,8)", compile_kernel._check_instructions, "instruction jmp"),
    ],
)
def test_what_the_compiler_made_decides(listing, check, said):
    """Whatever way assembler found through the text."""
    with pytest.raises(compile_kernel.Rejected, match=said):
        check(listing)


def test_what_the_compiler_makes_of_the_reference_is_permitted(tmp_path):
    """The checks of listing, sections and instructions look at something."""
    include = [str(Path(compile_kernel.__file__).with_name("cuda")), str(compilers.FOLDER)]
    compile_kernel.compiled(tmp_path, source=KERNEL, include=include, driver=f"{include[0]}/examine_on_host.cpp", gpu=False)
    table = subprocess.run(["readelf", "-SW", "rope.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert ".text" in table and len(re.findall(r"^ *\[ *\d+\] (\S*) +[A-Z_]+ ", table, flags=re.MULTILINE)) > 10
    listing = subprocess.run(
        ["objdump", "-d", "-w", "--no-show-raw-insn", "rope.o"], cwd=tmp_path, capture_output=True, text=True
    )
    assert listing.stdout.count(":\t") > 1000


SERIAL = [
    ("  if (thread >= threads) return;\n", "  if (thread != 0) return;\n  for (int64_t t = 0; t < threads; ++t) {\n"),
    ("thread / packs", "t / packs"),
    ("thread % packs", "t % packs"),
    ("*reinterpret_cast<Numbers*>(y + second) = out[1];\n", "*reinterpret_cast<Numbers*>(y + second) = out[1];\n  }\n"),
]
ON_THE_HOST = [("  constexpr int kWide = 16", "  y[0] = x[0];\n  constexpr int kWide = 16")]
COUNTER = [
    (
        "template <typename T, int kWidth, bool kInterleaved>",
        "int64_t rope_next;\ntemplate <typename T, int kWidth, bool kInterleaved>",
    ),
    ("const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;", "const int64_t thread = rope_next++;"),
]
STATIC = "#include <cstdint>\nint rope_made() { return 1; }\nint rope_global = rope_made();\n"
FORGER = """
extern "C" long write(int, const void*, unsigned long) { return 0; }
"""
CHEATS = {
    "one thread does it all": (changed(KERNEL, *SERIAL), "1 thread(s) wrote all of y"),
    "rope_launch does it on the host": (changed(KERNEL, *ON_THE_HOST), "rope_launch itself touches"),
    "threads count themselves": (changed(KERNEL, *COUNTER), "all threads share"),
    "threads count themselves in a function": (
        changed(
            KERNEL,
            (
                "const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;",
                "static int64_t next; const int64_t thread = next++;",
            ),
        ),
        "all threads share",
    ),
    "one thread under many names": (
        changed(
            KERNEL, *SERIAL, ("t < threads; ++t) {\n", "t < threads; ++t) {\n  threadIdx.x = t % 256, blockIdx.x = t / 256;\n")
        ),
        "1 thread(s) wrote all of y",
    ),
    "the course's kernel by its name": ('#include "../../plugins/rope/rope.cu"\n', "includes"),
    "it runs before main": (STATIC + KERNEL, "before any launch"),
    "it replaces the way answers go": (KERNEL + FORGER, "defines write"),
    "it replaces the watch": (KERNEL + 'extern "C" void __asan_load4_noabort(void*) {}\n', "contains '__asan_load4_noabort'"),
    "assembler": (changed(KERNEL, ("  Numbers out[2];\n", '  Numbers out[2];\n  asm volatile("nop");\n')), "contains 'asm'"),
    "unwatched by an attribute": (
        changed(
            KERNEL,
            (
                "struct Sizes {",
                "#define QUIET __attr##ibute__\nQUIET((no_sanitize_address)) inline void f() {}\nstruct Sizes {",
            ),
        ),
        "contains",
    ),
    "a constructor by an attribute": (KERNEL + "[[gnu::constructor]] static void first() {}\n", "contains 'gnu'"),
    "unwatched by a pragma": ("#pragma GCC optimize(3)\n" + KERNEL, "contains '#pragma'"),
}

# A kernel that copies x to the host's stack, where rope_launch rotates it, and a second one that copies the answers to y.
STAGED = """
#include "rope.h"
#include "cuda_on_host.h"
__global__ void rope_in(const float* x, float* staged, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) staged[i] = x[i];
}
extern "C" int rope_launch(int, int, const void* x, const float*, const float*, void*, int64_t b, int64_t s, int64_t h,
                           int64_t w, void* stream) {
  float staged[4096];
  const int64_t n = b * s * h * w;
  cudaLaunchConfig_t config;
  config.gridDim = dim3((n + 255) / 256), config.blockDim = dim3(256), config.stream = stream;
  return cudaLaunchKernelEx(&config, rope_in, static_cast<const float*>(x), static_cast<float*>(staged), n);
}
"""
# A variable that no thread initializes holds what the last one left at the same place of the stack.
LEFT_BEHIND = [
    (
        "const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;",
        "int64_t rope_left; if (blockIdx.x == 0 && threadIdx.x == 0) rope_left = -1; const int64_t thread = ++rope_left;",
    )
]
ASSEMBLER = 'inline void rope_quiet() { asm volatile("nop"); }\n'
CHEATS |= {
    "assembler that says it is a header's": (f'#line 1 "cuda_on_host.h"\n{ASSEMBLER}' + KERNEL, "contains '#line'"),
    "assembler in a compiler's marker": (f'# 1 "cuda_on_host.h" 1\n{ASSEMBLER}# 9 "rope.cu" 2\n' + KERNEL, "contains '#1'"),
    "a marker by digraph, behind a comment": (f'/**/ %: /**/ 1 "rope.h" 1\n{ASSEMBLER}' + KERNEL, "contains '#1'"),
    "a constructor in a macro that a header expands": (
        "#define uint2 rope_u {}; __attribute__((constructor)) inline void rope_first() {} struct uint2\n" + KERNEL,
        "put every #include before the first #define",
    ),
    "assembler in pieces": (
        KERNEL + '\n#define CAT(a, b) a##b\ninline void rope_q() { CAT(as, m)("nop"); }\n',
        "contains 'asm'",
    ),
    "a function that is chosen before main": (
        KERNEL + '\n#define CAT(a, b) a##b\nextern "C" int rope_pick() CAT(__attri, bute__)((ifunc("rope_chosen")));\n',
        "contains '__attribute__'",
    ),
    "work on the host's stack": (STAGED, "writes 4 bytes of the host's memory"),
    "threads count on what the last one left": (changed(KERNEL, *LEFT_BEHIND), ""),
}


def on_the_host(statement: str) -> str:
    """A kernel whose rope_launch does something before it launches."""
    return changed(KERNEL, ("  constexpr int kWide = 16", f"  {statement}\n  constexpr int kWide = 16"))


# What writes where the watch does not look, if the library does it.
OUTSIDE = "reinterpret_cast<float*>(reinterpret_cast<char*>(&rope_launch) + 4096)"
CHEATS |= {
    "sincosf writes into the examiner": (on_the_host(f"float rope_c; sincosf(0, {OUTSIDE}, &rope_c);"), "far from x, cos"),
    "modff writes on the host": (on_the_host("modff(1.5f, reinterpret_cast<float*>(y));"), "rope_launch itself touches y"),
    "frexpf writes on the host": (on_the_host("frexpf(1.5f, reinterpret_cast<int*>(y));"), "rope_launch itself touches y"),
    "sincosf by its address": (
        on_the_host("void (*const rope_f)(float, float*, float*) = sincosf; rope_f(0, (float*)y, (float*)y);"),
        "uses sincosf, which a kernel cannot call",
    ),
    "remquof of the library": (on_the_host("remquof(3, 2, reinterpret_cast<int*>(y));"), "uses remquof"),
    "lgammaf_r of the library": (on_the_host("lgammaf_r(3, reinterpret_cast<int*>(y));"), "uses lgammaf_r"),
    "modf of the namespace std": (
        "#include <cmath>\n" + on_the_host("std::modf(1.5f, reinterpret_cast<float*>(y));"),
        "uses modff, which a kernel cannot call",
    ),
}
# Numbers in the place of functions.
NUMBER = "reinterpret_cast<char*>(&rope_launch) + 1"
OWN_CALL = """
extern "C" int _Z14watched_launch4dim3S_PvPFvS0_EPKvm(dim3, dim3, void*, void (*)(void*), const void*, size_t);
"""
BY_NUMBER = "at which no function of rope.cu begins"
CHEATS |= {
    "a call by number": (on_the_host(f"reinterpret_cast<void (*)()>({NUMBER})();"), BY_NUMBER),
    "a call by number in a kernel": (
        changed(KERNEL, ("  Numbers out[2];\n", f"  Numbers out[2];\n  reinterpret_cast<void (*)()>({NUMBER})();\n")),
        BY_NUMBER,
    ),
    "the library's function by its address": (
        on_the_host("void* (*rope_f)(void*, const void*, size_t) = memcpy; rope_f(y, x, 16);"),
        BY_NUMBER,
    ),
    "a launch by number": (
        changed(
            KERNEL,
            (
                "  return cudaLaunchKernelEx(&config, kernel,",
                f"  return cudaLaunchKernelEx(&config, reinterpret_cast<decltype(kernel)>({NUMBER}),",
            ),
        ),
        BY_NUMBER,
    ),
    "a jump by number": (on_the_host(f"void* rope_to = {NUMBER}; goto *rope_to;"), BY_NUMBER),
    "a virtual function by number": (
        changed(KERNEL, ("struct Sizes {", "struct RopeV { virtual void f() {} };\nstruct Sizes {")).replace(
            "  constexpr int kWide = 16",
            "  RopeV v, *p = &v; char* f = "
            + NUMBER
            + "; char** table = &f; memcpy(&v, &table, 8); p->f();\n  constexpr int kWide = 16",
        ),
        BY_NUMBER,
    ),
    "a return to a number": (
        on_the_host(f"char* rope_a[1]; for (volatile int i = 0; i < 24; i = i + 1) rope_a[i] = {NUMBER};"),
        "outside of its local variables",
    ),
    "a thread's return to a number": (
        changed(
            KERNEL,
            (
                "  Numbers out[2];\n",
                "  Numbers out[2];\n  char* rope_a[1]; for (volatile int i = 1; i < 90; i = i + 1) rope_a[i] = 0;\n",
            ),
        ),
        "outside of its local variables",
    ),
    "a copy over its own return address": (
        on_the_host("char rope_a[64] = {}; memcpy(rope_a - 512, rope_a, 64);"),
        "outside of its local variables",
    ),
    "the examiner's launch under its other name": (
        KERNEL + OWN_CALL,
        "contains '_Z14watched_launch4dim3S_PvPFvS0_EPKvm'",
    ),
}
# Text that the compiler and the check could split in different ways; each hides the same attribute or include.
UNWATCHED = '__attribute__((no_sanitize("kernel-address"))) inline void rope_q() {}'
CHEATS |= {
    "hidden behind a letter beyond ASCII": (
        KERNEL + f"\n#define \u00e91\nenum {{ kBegin = \u00e91'a' + '/*' }};\n{UNWATCHED}\nenum {{ kEnd = '*/' }};\n",
        "contains '\u00e9' outside of comments and strings",
    ),
    "hidden behind a letter by its number": (
        KERNEL + f"\n#define \\u00e91\nenum {{ kBegin = \\u00e91'a' + '/*' }};\n{UNWATCHED}\nenum {{ kEnd = '*/' }};\n",
        "contains a backslash outside of comments and strings",
    ),
    "hidden behind a dollar": (
        KERNEL + f"\n#define $1\nenum {{ kBegin = $1'a' + '/*' }};\n{UNWATCHED}\nenum {{ kEnd = '*/' }};\n",
        "contains '$' outside of comments and strings",
    ),
    "hidden behind an open quote": (
        KERNEL + f"\n#define OPEN ' /*\n{UNWATCHED}\n#define CLOSE ' */\n",
        "a quote (') that is not closed",
    ),
    "hidden behind an open double quote": (
        KERNEL + f'\n#define OPEN " /*\n{UNWATCHED}\n#define CLOSE " */\n',
        'a quote (") that is not closed',
    ),
    "hidden behind a number with a quote": (
        KERNEL + f"\n#define N 1' '/*'\n{UNWATCHED}\n#define M 1' '*/'\n",
        "a quote right after the number 1",
    ),
    "hidden behind a quote in a character": (
        KERNEL + "\nconstexpr char rope_c = '\"'; " + UNWATCHED + "\n",
        "contains '__attribute__'",
    ),
    "hidden behind a page's end": (
        KERNEL + '\nconstexpr char rope_c[] = "\f"; ' + UNWATCHED + "\n",
        "the control character '\\x0c'",
    ),
    "hidden behind a line's end of Unicode": (
        KERNEL + '\nconstexpr char rope_c[] = "\u2028"; ' + UNWATCHED + "\n",
        "contains '__attribute__'",
    ),
    "hidden behind a trigraph": (KERNEL + f"\n// ??/\n/*\n{UNWATCHED}\n// */\n", "the trigraph ??/"),
    "hidden behind the name of a header": (
        KERNEL + f"\n#if __has_include(</*>)\n#endif\n#include <fstream>\n{UNWATCHED}\n#if __has_include(<*/>)\n#endif\n",
        "contains __has_include",
    ),
    "a directive by trigraph": (KERNEL + "\n??=include <fstream>\n", "the trigraph ??="),
}


# The course's kernel, but right and fast only where the examiner was known to look.
_GEOMETRY = "  config.stream = static_cast<cudaStream_t>(stream);\n  Kernel* const kernel"
_ONE_THREAD = "  if ({}) {{\n    config.gridDim = dim3(1, 1, 1);\n    config.blockDim = dim3({}, 1, 1);\n  }}\n" + _GEOMETRY
FOR_THE_EXAMINER = {
    "one thread but for one shape": [
        (_GEOMETRY, _ONE_THREAD.format("!(batch == 2 && head_size == 128 && heads >= 5 && heads <= 8 && sequence >= 30)", 1))
    ],
    "one thread where a wide access is impossible": [(_GEOMETRY, _ONE_THREAD.format("!aligned || heads < 3", 1))],
    "one thread for one type": [(_GEOMETRY, _ONE_THREAD.format("type == kRopeBFloat16", 1))],
    "eight threads for few tokens": [(_GEOMETRY, _ONE_THREAD.format("sequence < 20", 8))],
}
_LOADS = "      const Pack<float, kWidth> s = load<kWidth>(sin + int64_t(position) * half + pair);\n"
_NOTHING = (
    _LOADS
    + """      float nothing = 0;
      for (int r = 0; r < {}; ++r) {{
        const int64_t row = (int64_t(r) * 31 + position) % sequence;
        nothing += 0.0f * cos[row * half + pair] + 0.0f * sin[row * half + pair];
      }}
"""
)
_STORED = "narrow<T>(x_a * c.value[i] - x_b * s.value[i])"


@pytest.mark.parametrize("name", FOR_THE_EXAMINER)
def test_a_kernel_is_parallel_in_every_case(submission, name):
    examined = submission(changed(SOURCE.read_text(), *FOR_THE_EXAMINER[name]))
    assert examined.points == 0, examined.outcomes
    assert "less than a warp" in outcome(examined, "kernel").message


@pytest.mark.parametrize("rows", [32, 100])
def test_unneeded_reads_of_the_tables_cost_the_memory_task(submission, rows):
    edits = [(_LOADS, _NOTHING.format(rows)), (_STORED, _STORED.replace(")", " + nothing)"))]
    examined = submission(changed(SOURCE.read_text(), *edits))
    assert outcome(examined, "kernel").tier == "full" and outcome(examined, "memory").tier == "none"
    assert "of the tables is read" in outcome(examined, "memory").message


def test_nothing_follows_from_the_stream():
    """It was made of the seed, and a kernel that read neither x nor the tables was right in every case."""
    case = Case((1, 2, 3, 64), "float32", False, 5)
    wires = {tuple(case.wire()) for _ in range(5)}
    assert len({wire[:-1] for wire in wires}) == 1 and len({wire[-1] for wire in wires}) == 5


CLAMPED = (
    "__device__ inline float widen(float value) { return value; }",
    "__device__ inline float widen(float value) { return value; }\n"
    "__device__ inline float clamped(float v, float most) { return v > most ? most : v < -most ? -most : v; }",
)
# Right for numbers and shapes of usual size.
OF_USUAL_SIZES = {
    "x is clamped": (
        CLAMPED,
        ("x_a = widen(in[a / kWidth].value[a % kWidth])", "x_a = clamped(widen(in[a / kWidth].value[a % kWidth]), 64.0f)"),
    ),
    "tables are clamped": (CLAMPED, ("x_a * c.value[i] -", "x_a * clamped(c.value[i], 1.0f) -")),
    "128 pairs": (("pair < half;", "pair < (half < 128 ? half : 128);"),),
    "1024 pairs": (("pair < half;", "pair < (half < 1024 ? half : 1024);"),),
    "33 heads": (("  if (type < kRopeFloat32", "  if (heads > 33) return cudaSuccess;\n  if (type < kRopeFloat32"),),
    "7 sequences": (("  if (type < kRopeFloat32", "  if (batch > 7) return cudaSuccess;\n  if (type < kRopeFloat32"),),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the course's", *OF_USUAL_SIZES])
def test_cheat_a_kernel_for_usual_sizes_alone(name):
    kernel = changed(SOURCE.read_text(), *OF_USUAL_SIZES.get(name, ()))
    for seed in range(2):
        asked = [case for case in kernel_cases.cases(np.random.default_rng(seed)) if case.shape not in kernel_cases.ODD]
        assert all(run.right for run in run_kernel(kernel, asked)) == (name == "the course's")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
def test_cheats_score_nothing(submission, name):
    kernel, said = CHEATS[name]
    examined = submission(kernel)
    assert examined.points == 0, examined.outcomes
    assert said in outcome(examined, "kernel").message and outcome(examined, "kernel").hint


HOSTILE = {
    "a system's header": ("#include </etc/passwd>\n" + KERNEL, "includes </etc/passwd>"),
    "an include in disguise": ("#  /* */ include <fstream>\n" + KERNEL, "includes <fstream>"),
    "an include behind a comment that never began": (
        'static const char* const rope_text = "/*";\n#include <fstream>\nstatic const char* const rope_more = "*/";\n' + KERNEL,
        "includes <fstream>",
    ),
    "an include behind half a number": (
        "constexpr int rope_n = 1'0; /* ' */\n#include <fstream>\n// '\n" + KERNEL,
        "includes <fstream>",
    ),
    "an include behind a raw string": (
        'constexpr char rope_r[] = R"(/*)";\n#include <fstream>\n/* */\n' + KERNEL,
        "a raw string",
    ),
    "a macro's include": ("#define F </etc/passwd>\n#include F\n" + KERNEL, "includes F"),
    "files": (
        KERNEL + 'extern "C" int system(const char*);\nint rope_it() { return system("id"); }\n',
        "uses system, which a kernel cannot call",
    ),
    "fork": (KERNEL + 'extern "C" int fork();\nint rope_it() { return fork(); }\n', "uses fork"),
    "printing": (changed(KERNEL, ("  Numbers out[2];\n", '  Numbers out[2];\n  printf("%d", 1);\n')), "printf"),
    "no launch": (KERNEL.replace("int rope_launch(", "int rope_start("), "defines no function rope_launch"),
    "no text": ("\x00\xff", "control character"),
    "templates without end": (
        "template <int n> struct F { static constexpr int v = F<n + 1>::v; };\n" + "constexpr int v = F<0>::v;\n" + KERNEL,
        "does not compile",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_kernels_get_their_reason(submission, name):
    kernel, said = HOSTILE[name]
    examined = submission(kernel, only="kernel")
    assert examined.points == 0
    assert said in outcome(examined, "kernel").message, examined.outcomes


def test_the_compilers_own_marks_show_what_is_included():
    """However an include is hidden from the check of the text."""
    marks = (
        '# 0 "rope.cu"\n# 0 "<command-line>"\n# 1 "/usr/include/stdc-predef.h" 1 3 4\n# 0 "<command-line>" 2\n# 1 "rope.cu"\n'
    )
    permitted = (
        f'{marks}# 1 "/x/cuda_on_host.h" 1\n# 1 "/x/other.h" 1\nint a;\n# 2 "/x/cuda_on_host.h" 2\n# 3 "rope.cu" 2\nint b;'
    )
    assert compile_kernel._own_lines(permitted) == "int b;"
    with pytest.raises(compile_kernel.Rejected, match=r"includes rope\.cu"):
        compile_kernel._own_lines(f'{marks}# 1 "rope.cu" 1\nint a;\n# 3 "rope.cu" 2\n')


def test_text_beyond_ascii_in_comments_and_strings_is_permitted(submission):
    accents = "// L'\u00e9t\u00e9 1'a: it's \"mine\" \u2014 what??! C:\\new \u2028\n/* Gru\u00df $ ' */\n"
    text = 'constexpr int64_t rope_n = 1\'000; constexpr char rope_text[] = "\u00e9 \\" /*", rope_c = \'"\';\n'
    assert outcome(submission("\ufeff" + accents.replace("\n", "\r\n") + KERNEL + text, only="kernel"), "kernel").tier == "full"


def test_functions_with_pointers_and_by_address_are_permitted(submission):
    """They compute what CUDA's do, their stores are watched, and a switch or a table of functions is an ordinary part of a kernel."""
    body = """
  float one, two, whole;
  double half_turn, zero;
  int exponent;
  sincosf(0.5f, &one, &two);
  bool fine = one == sinf(0.5f) && two == cosf(0.5f);
  sincospi(0.5, &half_turn, &zero);
  fine = fine && half_turn == 1.0 && fabs(zero) < 1e-15;
  sincospif(1.5f, &one, &two);
  fine = fine && one == -1.0f && fabsf(two) < 1e-6f;
  fine = fine && modff(-2.25f, &whole) == -0.25f && whole == -2.0f && frexpf(-6.0f, &exponent) == -0.75f && exponent == 3;
  __sincosf(0.0f, &one, &two);
  int (*const add[2])(int) = {[](int n) { return n + 1; }, [](int n) { return n + 2; }};
  switch (add[exponent == 3](exponent)) {
    case 0: case 1: fine = false; break;
    case 2: fine = !fine; break;
    case 3: one = 1; break;
    case 4: two = 0; break;
    case 5: break;
    case 6: whole = 0; break;
    default: fine = false;
  }
  if (!fine || one != 0 || two != 1) return;
"""
    kernel = changed(KERNEL, ("  Numbers out[2];\n", "  Numbers out[2];\n" + body))
    found = outcome(submission(kernel, only="kernel"), "kernel")
    assert found.tier == "full", found


def stopped(body: str, shape=(1, 1, 2, 4)) -> Run:
    text = changed(SCALAR, ("  Numbers out[2];\n", f"  Numbers out[2];\n  {body}\n"))
    return run_kernel(text, [Case(shape, "float32", False, 1), Case(shape, "float32", False, 2)])[0]


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("const_cast<T*>(x)[0] = x[1];", "input", "writes into x"),
        ("y[(int64_t(1) << 40)] = x[0];", "outside", "far from x"),
        ("y[-1] = x[0];", "outside", "y[-1], and y has 8 numbers"),
        ("*reinterpret_cast<volatile int64_t*>(y + 1) = 1;", "misaligned", "writes 8 bytes at once at y[1]"),
        ("volatile int zero = 0; out[0].value[0] = narrow<T>(7 / zero);", "crash", "crashed"),
        ("memcpy(y + 8, x, 4);", "outside", "y[8]"),
        ("for (volatile int i = 0;;) i = 1;", "time", "stopped after 5 s"),
    ],
)
def test_faults_are_told(body, kind, said):
    run = stopped(body)
    assert run.kind == kind and said in run.fault and not run.right
    assert "thread (0, 0, 0) of block (0, 0, 0)" in run.fault


# ---- memory, on accesses that one can count by hand


def accesses(*rows: tuple[int, int, int, int, bool], site: int = 7) -> np.ndarray:
    """Rows of thread, offset, size, buffer, is_write."""
    return np.array(
        [(site, 0, thread, offset, buffer, size, is_write, 0) for thread, offset, size, buffer, is_write in rows], ACCESS
    )


def watched(found: np.ndarray, shape=(1, 1, 1, 64)) -> Run:
    return Run(Case(shape, "float32", False, 0), "", "", 0.0, 0, found, 64)


def test_sectors_of_requests():
    dense = accesses(*((t, 4 * t, 4, 0, False) for t in range(64)), *((t, 4 * t, 4, 3, True) for t in range(64)))
    found = traffic(watched(dense))
    assert (found.used, found.width, found.writers, found.read_once, found.written_once) == (1.0, 4.0, 64, True, True)
    spread = accesses(*((t, 4 * ((t * 8) % 64 + t // 8), 4, 0, False) for t in range(64)))
    assert traffic(watched(spread)).used == 0.5  # 32 threads, 4 of the 8 numbers in each of 8 sectors
    alone = accesses(*((32 * t, 4 * t, 4, 0, False) for t in range(64)))  # each in its own warp
    assert traffic(watched(alone)).used == 1 / 8
    again = accesses(*((t, 4 * t, 4, 0, False) for t in range(64)), *((t, 4 * t, 4, 0, False) for t in range(64)))
    assert not traffic(watched(again)).read_once
    assert len(np.unique(requests(again))) == 4  # two warps, two times
    wide = accesses(*((t, 16 * t, 16, 0, False) for t in range(16)))
    assert traffic(watched(wide)).width == 16


def test_nothing_recorded_is_nothing_used():
    found = traffic(watched(accesses()))
    assert (found.used, found.width, found.written_once) == (0, 0, False)


# ---- numbers


@pytest.mark.parametrize("dtype", rope_cases.DTYPES)
def test_errors_are_judged_as_the_plugin_tests_do(dtype):
    """Against an implementation of the bound that the course's own kernel is tested by."""
    case = Case((2, 5, 3, 16), dtype, True, seed=9, spare=2)
    kind = rope_cases.DTYPES[dtype]
    cos, sin = case.tables()
    exact = rope(case.x(), cos, sin, interleaved=True)
    steps = np.random.default_rng(1).uniform(-2, 2, exact.shape) * np.finfo(np.float32).eps
    y = (exact * (1 + (steps if dtype == "float32" else 2000 * steps))).astype(kind)
    theirs = rope_cases.excess(y, rope_cases.Case(case.x().astype(kind), cos.astype(np.float32), sin.astype(np.float32), True))
    ours = case.excess(y.view(np.uint32 if y.itemsize == 4 else np.uint16)).max()
    assert ours == pytest.approx(theirs, rel=1e-3)


def test_drawn_numbers():
    case = Case((2, 3, 2, 8), "float16", False, seed=3, spare=4)
    x, (cos, _) = case.x(), case.tables()
    assert x.shape == (2, 3, 2, 8) and cos.shape == (7, 4)
    assert np.abs(x).min() >= 1 / 32 and np.abs(x).max() < 8 and np.abs(cos).max() < 1 and (x < 0).any()
    assert (case.token(4) == x[1, 1]).all()
    assert not (Case((2, 3, 2, 8), "float16", False, seed=4).x() == x).all()


def test_cases_are_the_ones_promised():
    found = kernel_cases.cases(np.random.default_rng(0))
    shapes = {case.shape for case in found}
    assert (1, 1, 32, 128) in shapes and len(found) > 100
    assert {case.dtype for case in found} == {"float32", "float16", "bfloat16"} and {case.shifted for case in found} == {
        0,
        1,
        2,
        3,
        4,
    }
    assert any(shape[0] % 2 and shape[2] % 2 for shape in shapes) and {64, 66, 254, 256} <= {shape[3] for shape in shapes}
    assert len({case.seed for case in found}) == len(found)
    assert (
        max(shape[0] for shape in shapes) > 7
        and max(shape[2] for shape in shapes) > 33
        and max(shape[3] for shape in shapes) >= 2048
    )


def test_numbers_of_any_size_have_results_of_which_few_are_zero():
    for seed in range(5):
        for case in kernel_cases.cases(np.random.default_rng(seed)):
            exact = rope(case.x(), *case.tables(), interleaved=case.interleaved)
            with np.errstate(over="raise"):
                kept = exact.astype("float32" if case.dtype == "bfloat16" else case.dtype)
            assert np.isfinite(kept).all() and (kept == 0).mean() < 0.01, case


@pytest.mark.parametrize(
    "answer", [b"", b"x" * 50, b"\xff" * 500, np.zeros(lab08_kernel._REPORT.itemsize // 8, np.int64).tobytes()]
)
def test_nonsense_from_the_kernels_process(monkeypatch, answer):
    monkeypatch.setattr(lab08_kernel, "compile_program", lambda *_: b"")
    monkeypatch.setattr(lab08_kernel, "run_program", lambda *_: answer)
    case = Case((1, 1, 1, 2), "float32", False, 1)
    if not answer:
        assert not run_kernel("", [case])[0].right
    else:
        with pytest.raises(EngineError, match="invalid answer"):
            found = run_kernel("", [case])
            raise EngineError("invalid answer" if not found[0].right else "taken for right")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('rope.cu(12): error: identifier "foo" is undefined', "Line 12: identifier"),
        ("rope.cu:3:7: error: expected ';'\nrope.cu:9:1: error: more", "Line 3: expected ';'"),
        ("x.o: undefined reference to `rope_launch'", "defines no function rope_launch"),
        ("", "said nothing"),
    ],
)
def test_first_error(text, said):
    assert said in first_error(text)[0]


# ---- the plugin

PLUGINS = {
    "the clone forgets": (
        [("return RopePlugin(self.interleaved)", "return RopePlugin()")],
        "partial",
        "copies",
        "does your clone have",
    ),
    "nobody keeps the array": (
        [
            ("self.kept = np.array([self.interleaved]", "kept = np.array([self.interleaved]"),
            (
                '"interleaved", self.kept, trt.PluginFieldType.INT32)]\n        )\n        ### END',
                '"interleaved", kept, trt.PluginFieldType.INT32)]\n        )\n        ### END',
            ),
        ],
        "partial",
        "fields",
        "does not keep arrays alive",
    ),
    "always FP32 out": ([("return [input_types[0]]", "return [trt.DataType.FLOAT]")], "partial", "output types", "type of x"),
    "its own shape": (
        [("[trt.DimsExprs(inputs[0])]", "[trt.DimsExprs([builder.constant(n) for n in (1, 128, 32, 128)])]")],
        "partial",
        "output shapes",
        "expressions",
    ),
    "the shape of a table": (
        [("[trt.DimsExprs(inputs[0])]", "[trt.DimsExprs(inputs[1])]")],
        "partial",
        "output shapes",
        "expressions",
    ),
    "a shape of no dimensions": ([("trt.DimsExprs(inputs[0])", "trt.DimsExprs(4)")], "partial", "output shapes", "expressions"),
    "the dimensions in another order": (
        [("trt.DimsExprs(inputs[0])", "trt.DimsExprs([inputs[0][i] for i in (0, 2, 1, 3)])")],
        "partial",
        "output shapes",
        "expressions",
    ),
    "an expression of its own": (
        [("trt.DimsExprs(inputs[0])", "trt.DimsExprs([*list(inputs[0])[:3], builder.operation(None, None, None)])")],
        "partial",
        "output shapes",
        "expressions",
    ),
    "a build raises": (
        [("    def configure_plugin(self, inputs, outputs):\n        pass", "    def configure_plugin(self):\n        pass")],
        "partial",
        "a build for x of",
        "A build calls all methods",
    ),
    "tactic 0": (
        [("    def get_valid_tactics(self):\n        return []", "    def get_valid_tactics(self):\n        return [0]")],
        "partial",
        "found [false, true]",
        "A build calls all methods",
    ),
    "one tactic twice": (
        [("    def get_valid_tactics(self):\n        return []", "    def get_valid_tactics(self):\n        return [1, 1]")],
        "partial",
        "found [false, true]",
        "A build calls all methods",
    ),
    "an endless workspace": (
        [("        return 0\n\n    def enqueue", "        return 1 << 62\n\n    def enqueue")],
        "partial",
        "found [true, false]",
        "A build calls all methods",
    ),
    "any format will do": (
        [("        if tensor.format != trt.TensorFormat.LINEAR:\n            return False\n", "")],
        "partial",
        "formats",
        "Position 0",
    ),
    "any type will do": (
        [("            return tensor.type in DTYPES\n", "            return True\n")],
        "partial",
        "formats",
        "Position 0",
    ),
    "its own stream": (
        [("self.interleaved, stream)\n        ### END", "self.interleaved, 0)\n        ### END")],
        "partial",
        "enqueue",
        "stream is TensorRT's",
    ),
    "the first shape without end": (
        [("tuple(x.dims)", 'self.__dict__.setdefault("shape", tuple(x.dims))')],
        "partial",
        "enqueue",
        "at each call",
    ),
    "a base is not initialized": (
        [("        trt.IPluginV3OneRuntime.__init__(self)  # not in TensorRT 8.6\n", "")],
        "none",
        "IPluginV3OneRuntime.__init__",
        "four bases",
    ),
    "three mistakes": (
        [
            ("return [input_types[0]]", "return []"),
            ("[trt.DimsExprs(inputs[0])]", "[]"),
            ("return tensor.type in DTYPES", "return True"),
        ],
        "none",
        "4 of 7",
        "type of x",
    ),
    "another name": ([('"LabRope"', '"MyRope"')], "partial", "names", "name, version and namespace"),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_plugins_with_mistakes(submission, contract, name):
    edits, tier, said, hint = PLUGINS[name]
    found = outcome(submission(plugin=changed(PLUGIN, *edits)), "plugin")
    assert found.tier == tier and said in found.message and hint in found.hint, found


def test_every_broken_part_of_a_plugin_is_explained(submission, contract):
    edits = [
        ("return [input_types[0]]", "return [trt.DataType.FLOAT]"),
        ("self.interleaved, stream)\n        ### END", "self.interleaved, 0)\n        ### END"),
    ]
    found = outcome(submission(plugin=changed(PLUGIN, *edits)), "plugin")
    assert all(said in found.message for said in ("output types: get_output_data_types", "enqueue: enqueue of x", "expected"))
    assert "type of x" in found.hint and "stream is TensorRT's" in found.hint


def test_another_right_plugin(submission, contract):
    """Expressions one by one, fields by index, and a clone by copying its state."""
    plugin = changed(
        PLUGIN,
        ("[trt.DimsExprs(inputs[0])]", "[trt.DimsExprs([inputs[0][i] for i in range(4)])]"),
        ("{field.name: field.data for field in fields}", "{fields[i].name: fields[i].data for i in range(len(fields))}"),
        (
            "return RopePlugin(self.interleaved)",
            "copy = RopePlugin()\n        copy.__dict__.update(self.__dict__)\n        return copy",
        ),
    )
    assert outcome(submission(plugin=plugin), "plugin").tier == "full"


# What is kept for all plugins together. It is right if there is one plugin only: the last one decides.
OWN = "self.interleaved = bool(interleaved)"
GIVEN = 'return RopePlugin(given["interleaved"][0] if "interleaved" in given else False)'
SHARED = {
    "the value": (
        [
            (OWN, "if interleaved is not None:\n            RopePlugin.interleaved = bool(interleaved)"),
            ("return RopePlugin(self.interleaved)", "return RopePlugin(None)"),
        ],
        ["fields", "copies", "enqueue"],
    ),
    "the value of clones": (
        [
            (OWN, f"{OWN}\n        RopePlugin.last = self.interleaved"),
            ("return RopePlugin(self.interleaved)", "return RopePlugin(RopePlugin.last)"),
        ],
        ["copies", "enqueue"],
    ),
    "the value without a field": (
        [
            (GIVEN, 'RopeCreator.last = given["interleaved"][0] if "interleaved" in given else RopeCreator.last\n'
                    "        return RopePlugin(RopeCreator.last)"),
            ("class RopeCreator(trt.IPluginCreatorV3One):", "class RopeCreator(trt.IPluginCreatorV3One):\n    last = False\n"),
        ],
        ["fields"],
    ),
    "the array": (
        [("self.kept = np.array([self.interleaved]", "RopePlugin.kept = np.array([self.interleaved]")],
        ["fields", "copies"],
    ),
    "the array, which is never replaced": (
        [
            ("DTYPES = {", "KEPT = np.zeros(1, np.int32)\nDTYPES = {"),
            ("self.kept = np.array([self.interleaved], np.int32)", "KEPT[0] = self.interleaved"),
            ('"interleaved", self.kept, trt.PluginFieldType.INT32)]\n        )\n        ### END',
             '"interleaved", KEPT, trt.PluginFieldType.INT32)]\n        )\n        ### END'),
        ],
        ["fields", "copies"],
    ),
    "the shape": (
        [
            ("    def on_shape_change(self, inputs, outputs):\n        pass",
             "    def on_shape_change(self, inputs, outputs):\n        RopePlugin.shape = tuple(inputs[0].dims)"),
            ("tuple(x.dims)", "self.shape"),
        ],
        ["enqueue"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", slow_cases.after(3, SHARED))
def test_cheat_one_state_for_all_plugins(submission, contract, name):
    edits, broken = SHARED[name]
    found = outcome(submission(plugin=changed(PLUGIN, *edits)), "plugin")
    assert re.findall(r"Broken, ([\w ]+):", found.message) == broken, found
    assert found.tier == ("none" if len(broken) > lab.MOST_BROKEN else "partial") and found.hint


def test_states_of_each_plugin_are_permitted(submission, contract):
    """In another place than the plugin, made early, or kept from an earlier call."""
    plugin = changed(
        PLUGIN,
        ("DTYPES = {", "VALUES, ARRAYS = {}, {flag: np.array([flag], np.int32) for flag in (0, 1)}\nDTYPES = {"),
        (OWN, "VALUES[id(self)] = bool(interleaved)"),
        ("return RopePlugin(self.interleaved)", "return RopePlugin(VALUES[id(self)])"),
        ("self.kept = np.array([self.interleaved], np.int32)", "self.kept = ARRAYS[VALUES[id(self)]]"),
        (
            "    def on_shape_change(self, inputs, outputs):\n        pass",
            "    def on_shape_change(self, inputs, outputs):\n        self.shape = tuple(inputs[0].dims)",
        ),
        ("tuple(x.dims), self.interleaved", "self.shape, VALUES[id(self)]"),
    )
    found = outcome(submission(plugin=plugin), "plugin")
    assert found.tier == "full", found


@pytest.mark.parametrize(
    "shape",
    [
        "return [inputs[0]]",
        "return [tuple(inputs[0])]",
        "y = trt.DimsExprs(len(inputs[0]))\n        for i, one in enumerate(inputs[0]):\n            y[i] = one\n        return [y]",
        "assert not any(one.is_constant() for one in inputs[0])\n        return [trt.DimsExprs(inputs[0])]",
    ],
)
def test_other_right_shapes_and_tactics(submission, contract, shape):
    edits = [("return [trt.DimsExprs(inputs[0])]", shape)]
    edits += [
        ("    def get_valid_tactics(self):\n        return []", "    def get_valid_tactics(self):\n        return [2, 1]")
    ]
    edits += [("        return 0\n\n    def enqueue", "        return 4096\n\n    def enqueue")]
    edits += [("    def configure_plugin(self, inputs, outputs):\n        pass\n\n", "")]
    assert outcome(submission(plugin=changed(PLUGIN, *edits)), "plugin").tier == "full"


# No plugin: two empty classes, and the examiner's own questions answered by the rules that the task gives.
RULES = """
import gc
import sys


class RopePlugin:
    pass


class RopeCreator:
    pass


def frames():
    frame = sys._getframe()
    while frame := frame.f_back:
        yield frame


host = HOST
NAMES = ["LabRope", "1", "lab08"]
TYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}


def field(flag):
    return [["interleaved", "INT32", [int(flag)]]]


def legal(position, types, formats):
    right = tuple(TYPES) if position == 0 else (types[0],) if position == 3 else ("FLOAT",)
    return types[position] in right and formats[position] == "LINEAR"


def calls(interleaved, dtype, shapes, addresses, streams):
    return [[TYPES[dtype], *four, shape, interleaved, stream] for shape, four, stream in zip(shapes, addresses, streams)]


RIGHT = {
    "names_and_outputs": lambda interleaved: [NAMES, NAMES, 1],
    "interface": lambda interleaved, capability: True,
    "creator_fields": lambda: [["interleaved", "INT32"]],
    "fields": lambda interleaved, phase: field(interleaved),
    "default_fields": lambda interleaved, phase: field(bool(interleaved)),
    "copies": lambda interleaved: [[True, "LabRope", 1, field(interleaved)]] * 2,
    "output_types": lambda interleaved, types: types[:1],
    "output_shapes": lambda interleaved, names: [names[:1], []],
    "build": lambda interleaved, types: [True, True],
    "format": lambda interleaved, **given: legal(**given),
    "enqueue": calls,
}
host.answers = lambda self, names: {
    name: [{"answer": RIGHT[name](**one)} for pair in pairs for one in pair["both"]] for name, _, pairs in self.asked
}
"""
FOUND = "next(one for one in gc.get_objects() if isinstance(one, type) and one.__name__ == 'PluginHost')"
PLUGIN_CHEATS = {
    "answers from memory": (
        "import json, os\nfor fd in range(3, 20):\n    try:\n        os.write(fd, json.dumps({'nonce': 1, 'fields': []}).encode())\n"
        "    except OSError:\n        pass\nos._exit(0)\n",
        "invalid answer",
    ),
    "megabytes": (
        "import os\nwhile True:\n    for fd in range(3, 20):\n        try:\n            os.write(fd, b'x' * 65536)\n"
        "        except OSError:\n            pass\n",
        "more than",
    ),
    "the course's plugin by its name": ("from course_lib.plugins import rope_plugin\n", "may import tensorrt, numpy"),
    "it leaves": ("import os\nos._exit(0)\n", "without an answer"),
    "it exits": ("raise SystemExit(0)\n", "SystemExit"),
    "always yes": (
        "class Yes:\n    def __init__(self, *a): pass\n    def __getattr__(self, name): return lambda *a: True\n"
        "RopePlugin = RopeCreator = Yes\n",
        "0 of 7",
    ),
    "answers by the rules, found by name": (RULES.replace("HOST", 'sys.modules["__main__"].PluginHost'), "AttributeError"),
    "answers by the rules, found in memory": (RULES.replace("HOST", FOUND), "1 of 7 parts"),
    "answers by the rules, found in a frame": (
        RULES.replace("HOST", "next(frame for frame in frames() if 'host' in frame.f_locals).f_locals['host'].__class__"),
        "1 of 7 parts",
    ),
    "no class": ("x = 1\n", "defines no class RopePlugin"),
    "no Python": ("class {\n", "SyntaxError"),
}


@pytest.mark.parametrize("name", PLUGIN_CHEATS)
def test_plugins_that_cheat_or_are_hostile(submission, contract, name):
    plugin, said = PLUGIN_CHEATS[name]
    found = outcome(submission(plugin=plugin), "plugin")
    assert found.points == 0 and said in found.message and found.hint, found


def test_a_plugin_that_never_ends_is_stopped(submission, contract, monkeypatch):
    monkeypatch.setattr(lab08_contract, "TIME_LIMIT_S", 2.0)
    assert "within 2 s" in outcome(submission(plugin="while True: pass\n"), "plugin").message


def test_without_the_bindings_an_instructor_decides(submission, monkeypatch):
    def offline():
        raise NoNetwork("pip reached no registry")

    monkeypatch.setattr(lab08_contract, "_bindings", offline)
    found = outcome(submission(plugin=PLUGIN), "plugin")
    assert (found.tier, found.points) == ("inconclusive", 0) and "no registry" in found.message


def test_no_part_of_the_contract_is_asked_without_a_change():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        asked = lab08_contract._questions(rng)
        changed = lab08_contract._changed(asked, lab08_contract._secret(asked, rng))
        same = {name for name in asked if [one.expected for one in asked[name]] == [one.expected for one in changed[name]]}
        assert same == {"names_and_outputs", "interface", "build", "creator_fields"}, seed


def test_two_plugins_with_different_values_answer_each_question():
    for seed in range(20):
        asked = lab08_contract._questions(np.random.default_rng(seed))
        for name, several in asked.items():
            for one, other in zip(several[::2], several[1::2], strict=True):
                flags = {bool(question.arguments.get("interleaved")) for question in (one, other)}
                assert name == "creator_fields" or flags == {False, True}
                assert one.swapped == other.swapped and len(one.swapped) == lab08_contract._STEPS
            if len(several) > 2:
                assert all(len({question.swapped[step] for question in several}) == 2 for step in range(lab08_contract._STEPS))
    first = [lab08_contract._questions(np.random.default_rng(seed))["output_shapes"][0].swapped[0] for seed in range(20)]
    assert {*first} == {False, True}


def test_questions_are_drawn_anew():
    first, second = (lab08_contract._questions(np.random.default_rng(seed)) for seed in (1, 2))
    assert first.keys() == second.keys()
    assert [q.arguments for q in first["enqueue"]] != [q.arguments for q in second["enqueue"]]
    assert {q.expected for q in first["format"]} == {True, False}


def test_the_reference_plugin_is_the_solutions_without_its_marks():
    """As code: a notebook's lines are shorter, and some carry comments."""
    notebook, reference = (ast.dump(ast.parse(text)) for text in (PLUGIN, lab08_reference.PLUGIN))
    assert notebook == reference


# ---- on a GPU, as far as it can be seen without one


@pytest.fixture
def played(monkeypatch):
    """A program that rotates in numpy what the GPU would, or less right."""

    def play(worse: float = 0.0, error: int = 0):
        def run(program, question, launcher, *, max_bytes):
            kind, interleaved, *shape, rows, seed, of_x, of_table, launches, first, step, _ = np.frombuffer(
                question, np.int64
            ).tolist()
            if error:
                return np.int64(error).tobytes()
            answer = np.int64(0).tobytes()
            for which in (0, 1):
                last = max(i for i in range(launches) if i % 2 == which)
                spare = rows - shape[1]
                row = last % (spare // 8 + 1) * 8
                case = Case(
                    tuple(shape), gpu.DTYPES[kind], bool(interleaved), seed, spare, lowest_x=of_x, lowest_table=of_table
                )
                x = replace(case, seed=seed + 16 * which).x()
                cos, sin = (table[row:] for table in case.tables())
                y = rope(x, cos, sin, interleaved=bool(interleaved)).reshape(-1, shape[2] * shape[3]) * (1 + worse)
                answer += y[np.arange(first, len(y), step)].astype(rope_cases.DTYPES[gpu.DTYPES[kind]]).tobytes()
            return answer

        monkeypatch.setattr(gpu, "run_program", run)
        monkeypatch.setattr(gpu, "compile_program", lambda *a, **k: b"")
        monkeypatch.setattr(gpu, "usable", lambda: True)
        monkeypatch.setattr(gpu, "BIG", (2, 64, 2, 8))

    return play


def test_gpu_answers_are_checked(played):
    played()
    assert gpu.wrong_on_gpu("", (3, 5, 7, 66), np.random.default_rng(1), None) == ""
    played(worse=0.01)
    assert "numbers wrong" in gpu.wrong_on_gpu("", (3, 5, 7, 66), np.random.default_rng(1), None)
    played(error=700)
    with pytest.raises(EngineError, match="CUDA error 700"):
        gpu.GpuKernel(b"", None).wrong_numbers(Case((1, 1, 1, 2), "float32", False, 1))
    with pytest.raises(ExaminerFault, match="cannot be timed"):
        gpu.reference_s(Case((1, 1, 1, 2), "float32", False, 1), None)
    played(error=100)
    with pytest.raises(ExaminerFault, match="the GPU has gone: CUDA error 100"):
        gpu.GpuKernel(b"", None).wrong_numbers(Case((1, 1, 1, 2), "float32", False, 1))


def test_with_a_gpu_the_clock_decides(submission, played, monkeypatch):
    played()
    seconds = {"yours": 1e-3, "reference": 0.9e-3, "copy": 0.8e-3}
    monkeypatch.setattr(gpu.GpuKernel, "launch_s", lambda self, case, **_: seconds["yours"])
    monkeypatch.setattr(gpu, "reference_s", lambda case, launcher: (seconds["reference"], seconds["copy"]))
    examined = submission(KERNEL)
    assert tiers(examined) == {"kernel": "full", "memory": "full"} and "TB/s" in outcome(examined, "memory").message
    for seconds["yours"], tier in ((2e-3, "partial"), (20e-3, "none")):
        assert tiers(submission(KERNEL, only="memory")) == {"memory": tier}
    played(worse=0.01)
    examined = submission(KERNEL)
    assert tiers(examined) == {"kernel": "partial", "memory": "none"} and "On the GPU" in outcome(examined, "kernel").message


def test_the_kernel_that_others_are_timed_beside_may_call_what_it_calls():
    """On a GPU the course's own kernel goes through the same checks of words and symbols as a learner's."""
    text = re.sub(r"//.*", "", SOURCE.read_text())
    assert not compile_kernel._WORDS.search(text)
    device_side = {"cudaTriggerProgrammaticLaunchCompletion", "cudaGridDependencySynchronize"}
    called = set(re.findall(r"\b(cuda[A-Z]\w+)\(", text)) - device_side
    assert called == {"cudaFuncGetAttributes", "cudaLaunchKernelEx"}
    assert all(re.fullmatch(compile_kernel._GPU_CALLS, name) for name in called)


def test_time_of_a_launch_from_outside():
    def clock(launches: int) -> float:
        return 0.7 + 2e-4 * launches

    assert gpu.per_launch(clock) == pytest.approx(2e-4, rel=1e-6)


@pytest.mark.parametrize(("yours", "tier"), [(1.0, "full"), (1.2, "full"), (1.3, "partial"), (4.0, "partial"), (6.0, "none")])
def test_tiers_of_speed(yours, tier):
    case = Case(gpu.BIG, "float16", False, 1)
    judged = judge_speed(case, yours * 1e-4, 1e-4, 0.92e-4, "")
    assert judged.tier == tier and (not judged.hint) == (tier == "full")


# ---- pictures


def test_pictures():
    run = run_kernel(SOURCE.read_text(), [Case((1, 8, 2, 64), "float16", True, 1, watched=True)])[0]
    figure = sectors_figure({"interleaved": run})
    assert "32 sectors, 50 %" in figure.axes[0].get_title()
    assert judge_memory({run: traffic(run)}).tier == "full"
    floor, fp32, table = (line.get_ydata().max() for line in angle_figure().axes[0].lines[:3])
    assert floor > 1 and 1e-4 < fp32 < 1e-2 and table < 1e-7
