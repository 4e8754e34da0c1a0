"""Lab 08, plugin: RoPE as a CUDA kernel, and the IPluginV3 through which TensorRT would call it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from course_lib.errors import MISSING_FILE, EngineError
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.submission_files import read_text
from course_lib.labs.framework.task import NOT_EXAMINED, Outcome, Task
from course_lib.labs.lab08_plugin import reference
from course_lib.labs.lab08_plugin.judge import gpu
from course_lib.labs.lab08_plugin.judge.contract import Check, check_contract
from course_lib.labs.lab08_plugin.judge.judgment import (
    WITHOUT_NVCC,
    Judgment,
    judge_memory,
    judge_rotations,
    judge_speed,
    many_launches,
    serial,
)
from course_lib.labs.lab08_plugin.judge.kernel import Run, compile_ptx, run_kernel
from course_lib.labs.lab08_plugin.judge.kernel_cases import cases, large_cases, watched_cases
from course_lib.labs.lab08_plugin.judge.memory import Traffic, traffic
from course_lib.migration.tables.bindings import BindingsUnavailable
from course_lib.plugins.compilers import SOURCE
from course_lib.plugins.ptx import count_accesses

MOST_BROKEN = 2  # parts of the plugin's contract that may be broken for half of its points
_ODD_SHAPE = (3, 5, 7, 66)


class RopeLab(Lab):
    """The submission is `rope.cu` and `rope_plugin.py`."""

    name = "lab08_plugin"
    title = "Lab 08: a plugin of your own"
    artifacts: ClassVar = {"rope.cu": 64 << 10, "rope_plugin.py": 64 << 10}
    tasks = (
        Task("kernel", "A correct rotation kernel", 4),
        Task("memory", "Efficient memory access", 3),
        Task("plugin", "A plugin that meets its contract", 3),
    )

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The course's kernel and a plugin around it."""
        (folder / "rope.cu").write_bytes(SOURCE.read_bytes())
        (folder / "rope_plugin.py").write_text(reference.PLUGIN)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Run the kernel on the processor and, if there is one, on a GPU. Call the plugin as TensorRT would."""
        outcomes: tuple[Outcome, ...] = ()
        figures: dict[str, float] = {}
        if only != "plugin":
            outcomes, figures = self._kernel(folder / "rope.cu", examiner, only)
        if only in (None, "plugin"):
            outcomes += (self._plugin(folder / "rope_plugin.py", examiner),)
        return Examination(outcomes, figures=figures)

    def _kernel(self, file: Path, examiner: Examiner, only: str | None) -> tuple[tuple[Outcome, ...], dict[str, float]]:
        tasks = [only] if only else ["kernel", "memory"]
        rng = examiner.rng()
        try:
            source = read_text(file, self.artifacts[file.name])
            asked = [*watched_cases(rng), *(cases(rng) if "kernel" in tasks else []), *large_cases(rng)]
            runs = run_kernel(source, asked, examiner.launcher)
        except EngineError as error:
            hint = _HINTS.get(error.code, "A kernel is plain C++ with the headers of the skeleton.")
            return self.zero_outcomes(error, hint, tasks), {}
        watched = {run: traffic(run) for run in runs if run.case.watched and run.right}
        figures = {"rotations": float(len(runs)), "right": float(sum(run.right for run in runs))}
        if reason := serial(runs):
            return self.zero_outcomes(reason, _SERIAL, tasks), figures
        outcomes = []
        if "kernel" in tasks:
            outcomes.append(self._judged("kernel", self._rotations(source, runs, examiner)))
        if "memory" in tasks:
            outcomes.append(self._judged("memory", self._memory(source, runs, watched, examiner)))
        return tuple(outcomes), figures

    def _rotations(self, source: str, runs: Sequence[Run], examiner: Examiner) -> Judgment:
        judged = judge_rotations(runs)
        if judged.tier != "full" or not gpu.usable():
            return judged
        try:
            wrong = gpu.wrong_on_gpu(source, _ODD_SHAPE, examiner.rng(), examiner.launcher)
        except EngineError as error:
            return Judgment(
                "partial", f"{judged.message} On the GPU: {error}", "Compile it with nvcc: the same error appears there."
            )
        if wrong:
            hint = "Do all products of sizes and indices fit into 32 bits? int64_t is 64 bits wide."
            return Judgment("partial", f"{judged.message} On the GPU: {wrong}.", hint)
        return Judgment("full", f"{judged.message} So are those on the GPU, up to shape {gpu.BIG}.")

    def _memory(self, source: str, runs: Sequence[Run], watched: dict[Run, Traffic], examiner: Examiner) -> Judgment:
        wrong = [run for run in runs if run.case.watched and not run.right]
        if wrong:
            return Judgment(
                "none",
                f"The kernel is wrong, so its memory accesses are not graded: {wrong[0].message()}",
                "Fix the results of task 1 first.",
            )
        judged = judge_memory(watched)
        if not gpu.usable():
            return self._compiled(source, judged, watched, examiner)
        if many_launches(watched):
            return judged
        case = gpu.big_case(examiner.rng())
        try:
            yours = gpu.GpuKernel.compile(source, examiner.launcher)
            if yours.wrong_numbers(case, step=97):
                return Judgment(
                    "none",
                    "The kernel's results are wrong on the GPU, so its speed is not graded.",
                    "Fix the results of task 1 first.",
                )
            return judge_speed(case, yours.launch_s(case), *gpu.reference_s(case, examiner.for_ours.launcher), judged.hint)
        except EngineError as error:
            return Judgment("none", str(error), "Compile it with nvcc and run it: the same error appears there.")

    def _compiled(self, source: str, judged: Judgment, watched: dict[Run, Traffic], examiner: Examiner) -> Judgment:
        """The accesses that nvcc generates for a kernel with the right accesses in its source, if nvcc is installed."""
        if judged.tier != "full":
            return judged
        try:
            return judge_memory(watched, count_accesses(compile_ptx(source, examiner.launcher)))
        except EngineError as error:
            if error.code == "missing" or not _nvcc_works(examiner):
                return judged
            hint = "The host's compiler accepts this line and nvcc does not. What does the line use that a GPU does not have?"
            if error.code != "line":
                hint = "The host's compiler accepts this file and nvcc does not. Compare the parts that only nvcc reads, after #else."
            return Judgment("partial", f"{judged.message.removesuffix(WITHOUT_NVCC)} With nvcc, {error}", hint)

    def _plugin(self, file: Path, examiner: Examiner) -> Outcome:
        try:
            checks = check_contract(read_text(file, self.artifacts[file.name]), examiner.rng(), examiner.launcher)
        except BindingsUnavailable as error:
            said = f"Not examined: TensorRT's Python bindings are missing. {error}"
            return self.outcome("plugin", "inconclusive", said, share=0.0, code=NOT_EXAMINED)
        except EngineError as error:
            hint = (
                "The cell of task 3 writes the file: run it."
                if error.code == MISSING_FILE
                else "Read the line of the error in your file."
            )
            return self.outcome("plugin", "none", error, hint)
        return self._judged("plugin", _judge_contract(checks))

    def _judged(self, task: str, judged: Judgment) -> Outcome:
        return self.outcome(task, judged.tier, judged.message, judged.hint, share=1.0 if judged.tier == "full" else 0.5)


def _nvcc_works(examiner: Examiner) -> bool:
    """Whether nvcc compiles the course's own kernel here, so that another kernel's failure is that kernel's."""
    try:
        compile_ptx(SOURCE.read_text(), examiner.for_ours.launcher)
    except EngineError:
        return False
    return True


def _judge_contract(checks: Sequence[Check]) -> Judgment:
    broken = [check for check in checks if check.wrong]
    said = f"{len(checks) - len(broken)} of {len(checks)} parts of the contract met with the bindings of TensorRT 10.16."
    if not broken:
        return Judgment("full", said)
    tier = "partial" if len(broken) <= MOST_BROKEN else "none"
    found = " ".join(f"Broken, {check.title}: {check.wrong}." for check in broken)
    hints = dict.fromkeys(check.hint for check in broken)
    return Judgment(tier, f"{said} {found}", " ".join(hints))


_SERIAL = (
    "Which thread rotates which pair? blockIdx, blockDim and threadIdx give each thread its number. Launch more threads for more "
    "pairs: the grid follows from batch, sequence, heads and head size."
)
_HINTS = {  # for rope.cu, by the code of the error; "compile" and "line" are the compiler's complaints
    MISSING_FILE: "The cell of task 1 writes the file: run it, then check again.",
    "launch": "As in lecture 9: a config with gridDim, blockDim and stream, then cudaLaunchKernelEx(&config, kernel, arguments...).",
    "empty": "Write the missing part in task 1 and run its cell, which writes rope.cu.",
    "shared": "Each thread computes its own number, from blockIdx, blockDim and threadIdx.",
    "call": "A kernel cannot call a library, open a file or print. What do you need this call for?",
    **dict.fromkeys(
        ("compile", "line"),
        "The line is one of rope.cu. Compare it with the declarations above it, and read the first error only.",
    ),
}


lab = RopeLab()
