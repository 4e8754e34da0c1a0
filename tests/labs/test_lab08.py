"""Lab 08 against its reference, other right answers, mistakes that learners make, and copies of the course's own plugin."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from course_lib import labs
from course_lib.errors import ExaminerFault
from course_lib.labs import Examiner, withheld
from course_lib.labs.framework.criteria import Outcome
from course_lib.labs.lab08_plugin import checks, given, reference
from course_lib.labs.lab08_plugin.given import ACCESS, WARP, Rotation, Run, requests, traffic
from course_lib.migration.tables.bindings import BindingsUnavailable, NoNetwork
from course_lib.plugins.compilers import SOURCE
from course_lib.plugins.launchers import DTYPES
from tests.labs.quick import examined, tiers
from tests.labs.submissions import changed, edit, table
from tests.plugins import rope_cases

LAB = labs.find("lab08")
ROOT = Path(__file__).resolve().parents[2]
FULL = {"kernel": "full", "memory": "full", "plugin": "full"}
MADE = table("lab08")


def write_files(folder: Path, kernel: str = reference.KERNEL, plugin: str = reference.PLUGIN) -> None:
    (folder / "rotary.cu").write_text(kernel)
    (folder / "rotary_plugin.py").write_text(plugin)


def write_edited(folder: Path, row: dict[str, Any]) -> None:
    """The reference with changes."""
    write_files(folder)
    edit(folder, row["changes"])


def written_by(notebook: Path, file: str) -> str:
    """What a notebook's cell writes."""
    cells = nbformat.read(notebook, as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.source.startswith(f"%%writefile {file}\n"))
    return source.partition("\n")[2]


@pytest.fixture(scope="module")
def bindings() -> None:
    """Skip where the bindings can neither be found nor fetched."""
    try:
        checks._bindings()
    except BindingsUnavailable as absent:
        pytest.skip(str(absent))


@pytest.fixture
def few(monkeypatch) -> None:
    """Fewer rotations, to be quick."""

    def rotations(rng):
        shapes = [
            ((2, 4, 16, 64), 32, 0),
            ((7, 1, 2, 96), 94, 0),
            ((1, 3, 17, 66), 66, 0),
            ((2, 4, 3, 64), 32, 1),
            ((3, 8, 100, 128), 32, 0),
        ]
        return [
            Rotation(shape, rotary, dtype, int(rng.integers(1 << 32)), 1, shifted)
            for shape, rotary, shifted in shapes
            for dtype in DTYPES
        ]

    monkeypatch.setattr(checks, "rotations", rotations)


def outcome(folder: Path, task: str):
    return examined(LAB, folder, task, Examiner(seed=3))


def of_kernel(folder: Path) -> dict[str, Outcome]:
    """The outcomes of both tasks of a kernel, which is compiled once."""
    with LAB.work(folder, Examiner(seed=3)) as work:
        return {task: LAB._checked(LAB.task(task), work) for task in ("kernel", "memory")}


# ---- whole submissions


def test_the_solution_is_decided_without_the_reference(tmp_path, monkeypatch, bindings):
    notebook = ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb"
    write_files(tmp_path, written_by(notebook, "rotary.cu"), written_by(notebook, "rotary_plugin.py"))
    monkeypatch.setitem(sys.modules, reference.__name__, withheld)
    monkeypatch.setattr(checks, "reference", withheld)
    assert tiers(LAB.examine(tmp_path, Examiner())) == FULL


def test_copies_of_the_courses_own_plugin_earn_less_than_half(tmp_path, few, bindings):
    copied = MADE["copied"]
    write_edited(tmp_path, copied)
    (tmp_path / "rotary.cu").write_text(changed(SOURCE.read_text(), copied["kernel"]) + copied["launch"])
    found = LAB.examine(tmp_path, Examiner())
    assert tiers(found) == {"kernel": "none", "memory": "none", "plugin": "partial"}, found.outcomes
    assert found.points == 1.5 and found.max_points == 10


# ---- the kernel


@pytest.mark.parametrize("name", MADE["kernels"])
def test_a_mistake_in_the_kernel_is_named(tmp_path, few, name):
    mistake = MADE["kernels"][name]
    write_edited(tmp_path, mistake)
    found = of_kernel(tmp_path)
    assert {task: one.tier for task, one in found.items()} == mistake["tiers"], found
    first = next(one for one in found.values() if one.tier != "full")
    assert mistake["words"] in first.message and mistake["hint"] in first.hint, first


@pytest.mark.parametrize("name", MADE["other_kernels"])
def test_another_right_kernel(tmp_path, few, name):
    row = MADE["other_kernels"][name]
    write_edited(tmp_path, row)
    found = of_kernel(tmp_path)
    assert found["kernel"].tier == "full" and found["memory"].tier == row["memory"] and row["hint"] in found["memory"].hint, (
        found
    )


@pytest.mark.parametrize("name", MADE["rejected"])
def test_what_is_no_kernel_is_not_run(tmp_path, name):
    write_edited(tmp_path, MADE["rejected"][name])
    found = outcome(tmp_path, "kernel")
    assert found.tier == "none" and MADE["rejected"][name]["words"] in found.message and found.hint, found


def launched(body: str) -> Run:
    """A run on the smallest shape of a kernel that only has this body."""
    source = f"""#include "cuda_on_host.h"
#include "rotary.h"
__global__ void body(const float* x, const int32_t* positions, float* y, const int64_t* host) {{ {body} }}
extern "C" int rotary_launch(int, const void* x, const float*, const float*, const int32_t* positions, void* y, int64_t batch,
                             int64_t, int64_t, int64_t, int64_t, void* stream) {{
  cudaLaunchConfig_t config{{}};
  config.gridDim = dim3(1, 3), config.blockDim = dim3(2), config.stream = stream;
  return cudaLaunchKernelEx(&config, body, static_cast<const float*>(x), positions, static_cast<float*>(y),
                            static_cast<const int64_t*>(&batch));
}}
"""
    (run,) = given.run_kernel(source, [Rotation((1, 1, 2, 4), 2, "float32", 1)])
    return run


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("y[8] = 1;", "outside", "thread (0, 0, 0) of block (0, 0, 0) writes 4 bytes at y[8], and y has 8 numbers"),
        ("const_cast<float*>(x)[0] = 1;", "input", "x[0], which is an input"),
        ("y[0] = *reinterpret_cast<const double*>(x + 1);", "misaligned", "an address that is not a multiple of 8"),
        ("y[0] = *host;", "host memory", "the host's memory, which no GPU reaches"),
        ("volatile int zero = threadIdx.x; y[0] = 1 % zero;", "crash", "signal 8"),
    ],
    ids=["beyond y", "an input", "not aligned", "the host's memory", "a division by zero"],
)
def test_faults_are_described(body, kind, words):
    run = launched(body)
    assert run.kind == kind and words in run.fault, run
    assert checks._hint([run], [run]), run


def test_a_kernel_that_never_ends_is_named_first(tmp_path, few):
    write_files(
        tmp_path, changed(reference.KERNEL, [("    store(y + at", "    while (n.sequence == 17) {}\n    store(y + at")])
    )
    found = outcome(tmp_path, "kernel")
    assert found.tier == "partial" and "stopped after 5 s of work" in found.message, found
    assert "rotations that were not run, because an earlier one did not end is 8" in found.message


# ---- rotations and their numbers


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_are_those_of_the_formula(dtype):
    """Also those that were rounded to the type; a number that is off by two steps of the type is wrong."""
    rotation = Rotation((2, 3, 4, 8), 4, dtype, 7, spare=3)
    heads = np.arange(rotation.heads)
    x, (cos, sin) = rotation.x(heads), rotation.tables()
    y = x.copy()
    for row in heads:
        position = rotation.positions(heads)[row]
        for i in range(2):
            a, b, c, s = x[row, 2 * i], x[row, 2 * i + 1], cos[position, i], sin[position, i]
            y[row, 2 * i : 2 * i + 2] = a * c - b * s, b * c + a * s
    bits = y.astype(rope_cases.DTYPES[dtype]).view(np.uint32 if dtype == "float32" else np.uint16)
    assert rotation.excess(bits).max() <= 1
    wrong = rotation.excess(bits + 2)
    assert (wrong > 1).mean() > 0.7 and (wrong[:, 4:] > 1).all()
    tokens = rotation.positions(heads).reshape(2, 3, 4)
    assert (tokens == tokens[:, :1]).all() and (tokens[0] != tokens[1]).any()
    assert (rotation.positions(heads, first=4).reshape(2, 3, 4)[0] == tokens[1]).all()


def test_rotations_cover_what_the_text_promises():
    asked = given.rotations(np.random.default_rng(1))
    assert {one.dtype for one in asked} == set(DTYPES) and {one.shifted for one in asked} == set(range(6))
    assert any(one.rotary == one.shape[3] for one in asked) and any(one.rotary % 8 for one in asked)
    assert all(one.rotary % 2 == 0 and 2 <= one.rotary <= one.shape[3] <= 4096 for one in asked)
    assert max(one.count for one in asked) > 1024 * checks.MOST_OF_THREAD
    for seed in range(20):
        assert all(min(one.shape) > checks.MOST_LAUNCHES - 1 for one in given.watched_rotations(np.random.default_rng(seed)))


# ---- accesses


def accesses(*rows: tuple[int, int, int, int, bool], site: int = 7) -> np.ndarray:
    """Accesses of block 0, from rows of thread, buffer, offset, size and whether it is a write."""
    return np.array([(site, 0, thread, offset, buffer, size, write, 0) for thread, buffer, offset, size, write in rows], ACCESS)


def test_sectors_of_requests():
    neighbors = accesses(*((thread, given.X, 4 * thread, 4, False) for thread in range(WARP)))
    apart = accesses(*((thread, given.X, 128 * thread, 4, False) for thread in range(WARP)))
    rotation = Rotation((1, 1, 1, 64), 32, "float32", 1)
    assert traffic(Run(rotation, accesses=neighbors)).used == 1.0
    assert traffic(Run(rotation, accesses=apart)).used == 4 / 32
    twice = np.concatenate([neighbors, neighbors])
    assert len(set(requests(twice).tolist())) == 2 and traffic(Run(rotation, accesses=twice)).used == 1.0
    assert traffic(Run(rotation)).used == 0.0 and not traffic(Run(rotation)).written_once


# ---- the plugin


@pytest.mark.parametrize("name", MADE["plugins"])
def test_a_mistake_in_the_plugin_is_named(tmp_path, bindings, name):
    mistake = MADE["plugins"][name]
    write_edited(tmp_path, mistake)
    found = outcome(tmp_path, "plugin")
    assert found.tier == mistake["tier"] and mistake["words"] in found.message and mistake["hint"] in found.hint, found


def test_another_right_plugin(tmp_path, bindings):
    write_edited(tmp_path, MADE["other_plugin"])
    assert outcome(tmp_path, "plugin").tier == "full"


def test_without_the_bindings_an_instructor_decides(tmp_path, monkeypatch):
    def absent() -> None:
        raise NoNetwork("pip reached no registry")

    monkeypatch.setattr(checks, "_bindings", absent)
    write_files(tmp_path)
    found = outcome(tmp_path, "plugin")
    assert (found.tier, found.points, found.code) == ("inconclusive", 0, "not_examined")
    assert "bindings are missing. pip reached no registry" in found.message


def test_the_reference_is_the_solution_without_its_marks():
    notebook = ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb"
    plugin = ast.dump(ast.parse(written_by(notebook, "rotary_plugin.py")))
    assert plugin == ast.dump(ast.parse(reference.PLUGIN))
    lines = written_by(notebook, "rotary.cu").splitlines()
    assert [line for line in lines if "###" not in line] == reference.KERNEL.splitlines()


# ---- on a GPU, as far as it can be seen without one


@pytest.fixture
def gpu(monkeypatch):
    """A program that rotates in numpy what the GPU would, or less right; and its seconds."""
    seconds = {"yours": 1e-3, "copy": 0.8e-3, "reference": 0.9e-3, "worse": 0.0, "error": 0}

    def run(program, question, launcher):
        kind, *sizes, rows, seed, launches, first, step, _ = np.frombuffer(question, np.int64).tolist()
        rotation = Rotation(tuple(sizes[:4]), sizes[4], DTYPES[kind], seed, rows - sizes[2])
        heads = np.arange(first, rotation.heads, step)
        answer = np.int64(seconds["error"]).tobytes()
        for which in (0, 1):
            last = max(i for i in range(launches) if i % 2 == which)
            cos, sin = (table[rotation.positions(heads, 4 * (last % 16))] for table in rotation.tables())
            y = given.rotate(rotation.x(heads, which), cos, sin) * (1 + seconds["worse"])
            answer += y.astype(rope_cases.DTYPES[rotation.dtype]).tobytes()
        return answer

    monkeypatch.setattr(checks, "usable_gpu", lambda: True)
    monkeypatch.setattr(checks, "BIG", Rotation((2, 2, 512, 8), 4, "float16", 0))
    monkeypatch.setattr(given, "run_program", run)
    monkeypatch.setattr(given.GpuKernel, "compile", classmethod(lambda cls, source, launcher=None: cls(b"", launcher)))
    monkeypatch.setattr(given.GpuKernel, "launch_s", lambda self, _, is_copy=False: seconds["copy" if is_copy else "yours"])
    monkeypatch.setattr(checks, "reference_s", lambda *_: seconds["reference"])
    return seconds


@pytest.fixture
def on_host(monkeypatch) -> None:
    """Runs of the reference on the processor, without a compiler."""
    monkeypatch.setattr(checks, "compile_program", lambda *_: b"")
    monkeypatch.setattr(checks, "run_compiled", lambda _, several, __: [Run(one) for one in several])


def test_with_a_gpu_the_clock_decides(tmp_path, gpu, on_host):
    write_files(tmp_path)
    assert outcome(tmp_path, "kernel").tier == "full"
    for gpu["yours"], tier in ((1e-3, "full"), (2e-3, "partial"), (20e-3, "none")):
        found = outcome(tmp_path, "memory")
        assert found.tier == tier and "share of a copy's speed" in found.message, found
    gpu["worse"] = 0.01
    assert (outcome(tmp_path, "kernel").tier, outcome(tmp_path, "memory").tier) == ("partial", "none")
    gpu["error"] = 700
    assert "CUDA error 700" in outcome(tmp_path, "kernel").message and "CUDA error 700" in outcome(tmp_path, "memory").message
    gpu["error"] = 100
    with pytest.raises(ExaminerFault, match="the GPU has gone: CUDA error 100"):
        LAB.examine(tmp_path, Examiner(), only="memory")


def test_without_the_reference_only_its_speed_is_open(tmp_path, gpu, on_host, monkeypatch):
    monkeypatch.setattr(checks, "reference", withheld)
    write_files(tmp_path)
    found = outcome(tmp_path, "memory")
    assert found.open and "Not compared with the reference yet" in found.message and "a copy's speed" in found.message
    gpu["yours"] = 2e-3
    slow = outcome(tmp_path, "memory")
    assert slow.message != found.message and "Not met: share of a copy's speed" in slow.message


def test_time_of_a_launch_from_outside():
    assert given.per_launch(lambda launches: 0.7 + 2e-4 * launches) == pytest.approx(2e-4, rel=1e-6)
