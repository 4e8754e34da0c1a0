"""What a submission can do to a GPU, and what can befall it: each ends as a graded outcome with its reason, and the next is graded right.

A device that is really lost cannot be made here: one that no process of the submission can see stands in for it. On the processor the
kernels of this file behave: only there are all their accesses watched, so a fault that shows there never reaches the GPU.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_lib import labs
from course_lib.engines.cuda.driver import capability
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Examiner
from course_lib.labs.lab08_plugin import reference
from course_lib.labs.lab08_plugin.given import usable_gpu
from course_lib.recipe import Profile, Recipe
from tests.gpu.test_tensorrt import target  # noqa: F401  (the same fixture)

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(capability() is None, reason="no NVIDIA GPU and driver answer"),
    pytest.mark.timeout(420),
]
needs_nvcc = pytest.mark.skipif(
    not usable_gpu(), reason="no nvcc with a GPU: tests/labs/test_lab08.py has the same kernels on the processor"
)
needs_sandbox = pytest.mark.skipif(bool(sandbox.problem()), reason=f"no sandbox: {sandbox.problem()}")

FIRST, KERNELS = labs.find("lab01"), labs.find("lab08")
LONGEST_S = 300  # of one grading: a kernel that never ends is waited for twice, 40 s each
LEFT_FREE = 8 << 30  # bytes on a crowded GPU: enough for the reference of every lab
_LINE = "  const int packs = n.head_size / kWidth,"


def graded(lab: Any, folder: Path, examiner: Examiner | None = None) -> Verdict:
    started = time.monotonic()
    verdict = judge(lab, folder, examiner=examiner, trusted=bool(sandbox.problem()))
    seconds = time.monotonic() - started
    known = verdict.to_json()
    print(
        json.dumps({key: known[key] for key in ("lab", "score", "fault", "tasks")} | {"seconds": round(seconds, 1)}), flush=True
    )
    assert seconds < LONGEST_S
    return verdict


def messages(verdict: Verdict) -> dict[str, str]:
    assert not verdict.fault, verdict.fault
    return {outcome.task.id: outcome.message for outcome in verdict.outcomes}


def kernel(folder: Path, on_gpu: str) -> Path:
    """The reference of lab 08, whose kernel does one thing more on a GPU."""
    folder.mkdir()
    KERNELS.write_reference(folder)
    source = reference.KERNEL
    assert source.count(_LINE) == 1
    (folder / "rotary.cu").write_text(source.replace(_LINE, f"#ifndef ON_HOST\n{on_gpu}\n#endif\n{_LINE}"))
    return folder


@pytest.fixture
def next_is_right(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Grades the reference of lab 08; at the end the GPU's memory must be as free as before."""
    torch.zeros(1, device="cuda")
    free = torch.cuda.mem_get_info()[0]

    def check() -> None:
        folder = tmp_path / "next"
        folder.mkdir()
        KERNELS.write_reference(folder)
        tiers = {outcome.task.id: outcome.tier for outcome in graded(KERNELS, folder).outcomes}
        assert (tiers["kernel"], tiers["memory"]) == ("full", "full")

    yield check
    deadline = time.monotonic() + 30
    torch.cuda.empty_cache()
    while torch.cuda.mem_get_info()[0] < free - (1 << 30) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert torch.cuda.mem_get_info()[0] >= free - (1 << 30), "a process of the submission is still there"


@pytest.fixture
def crowded() -> Iterator[None]:
    """A GPU on which others have left 8 GiB: plain memory of this process, given back at the end."""
    torch.zeros(1, device="cuda")
    held = torch.empty(max(0, torch.cuda.mem_get_info()[0] - LEFT_FREE), dtype=torch.uint8, device="cuda")
    yield
    del held
    torch.cuda.empty_cache()


# ---- kernels

# Each is a part of a __device__ function; what is read is volatile, so that no compiler may leave the part out.
ENDLESS = "  while (*reinterpret_cast<const volatile float*>(cos) < 1e30f) {}"
ILLEGAL = "  reinterpret_cast<volatile char*>(y)[int64_t(1) << 44] = 1;"


@needs_nvcc
@pytest.mark.parametrize(
    ("on_gpu", "said"),
    [(ENDLESS, "it gave no answer within 40 s and was stopped"), (ILLEGAL, "the kernel failed with CUDA error 700")],
    ids=["never ends", "illegal address"],
)
def test_a_kernel_that_misbehaves_on_the_gpu_alone(tmp_path, next_is_right, on_gpu, said):
    verdict = graded(KERNELS, kernel(tmp_path / "submission", on_gpu))
    found = messages(verdict)
    assert said in found["kernel"] and said in found["memory"], found
    tiers = {outcome.task.id: outcome.tier for outcome in verdict.outcomes}
    assert (tiers["kernel"], tiers["memory"]) == ("partial", "none")
    next_is_right()


# ---- engines


def first_engine(folder: Path, examiner: Examiner, largest: int) -> Path:
    """Lab 01's reference with another largest batch in its profile."""
    folder.mkdir()
    FIRST.write_reference(folder, opset=examiner.opset)
    shapes = {"min": (1, 1, 32, 32), "opt": (1, 1, 32, 32), "max": (largest, 1, 32, 32)}
    Recipe(profiles=[Profile(image=shapes)]).save(folder / "recipe.toml")
    return folder


def test_a_profile_that_demands_more_memory_than_there_is(tmp_path, target, crowded):  # noqa: F811
    """Two tensors of 7.5 GiB at the largest batch: the engine is built, and then there is no room for it to run in."""
    examiner = Examiner(builder=target, runner=target)
    verdict = graded(FIRST, first_engine(tmp_path / "submission", examiner, 30_000), examiner)
    assert verdict.score < verdict.max_score and not verdict.fault
    assert "memory" in " ".join(messages(verdict).values()).lower()
    following = graded(FIRST, first_engine(tmp_path / "next", examiner, 32), examiner)
    assert (following.fault, following.score) == ("", following.max_score)


# ---- a device that is gone: nobody's points may depend on it


@pytest.fixture(params=["no device file", "no device in sight"])
def lost(request, monkeypatch):
    """From here on the processes of a submission have no GPU, although the judge has seen one; the returned function brings it back."""
    assert capability() is not None
    if request.param == "no device in sight":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    elif sandbox.problem():
        pytest.skip(f"no sandbox: {sandbox.problem()}")
    else:
        monkeypatch.setattr(sandbox, "_GPU_DEVICES", ())
    return monkeypatch.undo


def test_an_engine_without_its_device_is_not_graded(tmp_path, target, lost):  # noqa: F811
    examiner = Examiner(builder=target, runner=target)
    folder = first_engine(tmp_path / "submission", examiner, 32)
    verdict = graded(FIRST, folder, examiner)
    assert verdict.fault and verdict.score == 0 and "GPU" in verdict.fault
    lost()
    following = graded(FIRST, folder, examiner)
    assert (following.fault, following.score) == ("", following.max_score)


@needs_nvcc
def test_a_kernel_without_its_device_is_not_graded(tmp_path, next_is_right, lost):
    verdict = graded(KERNELS, kernel(tmp_path / "submission", ""))
    assert verdict.fault and "CUDA error 100" in verdict.fault
    lost()
    next_is_right()


# ---- a notebook

NEVER_LEAVES = """import torch
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except RuntimeError as error:
    print(error)
taken = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
while True:
    torch.cuda._sleep(1 << 60)
    torch.cuda.synchronize()
"""


@needs_sandbox
def test_a_notebook_that_never_leaves_the_gpu_is_stopped_and_its_files_are_graded(tmp_path, target):  # noqa: F811
    pytest.importorskip("nbgrader")
    from course_lib.grading.batch.classroom import Classroom
    from tests.grading.conftest import new_course, submit

    examiner = Examiner(builder=target, runner=target)
    files = first_engine(tmp_path / "files", examiner, 32)
    (tmp_path / "course").mkdir()
    where = {"builder": target, "runner": target}
    room = Classroom(new_course(tmp_path / "course"), examiner=where, limits={"timeout": 30, "total_timeout_s": 45})
    submit(room, "never", first_cell=NEVER_LEAVES, reference=files)
    started = time.monotonic()
    (grade,) = room.grade(FIRST, ["never"])
    print(json.dumps(grade.to_json()))
    assert time.monotonic() - started < LONGEST_S
    assert grade.score == 10
