"""Lab 06, plugin: RoPE as a CUDA kernel and the IPluginV3 that TensorRT would call it through."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from course_lib.errors import EngineError
from course_lib.labs import lab06_gpu, lab06_reference
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task
from course_lib.labs.handed_in import read_text
from course_lib.labs.lab06_cases import cases, watched_cases
from course_lib.labs.lab06_contract import Check, check_contract
from course_lib.labs.lab06_judgement import Judgement, judge_memory, judge_rotations, judge_speed, serial
from course_lib.labs.lab06_kernel import Run, compile_ptx, run_kernel
from course_lib.labs.lab06_memory import Traffic, traffic
from course_lib.migration.bindings import BindingsUnavailable
from course_lib.plugins.compilers import SOURCE
from course_lib.plugins.ptx import count_accesses

MOST_BROKEN = 2  # parts of the plugin's contract that may be broken for half of its points
_ODD_SHAPE = (3, 5, 7, 66)


class RopeLab(Lab):
    """Hand in `rope.cu` and `rope_plugin.py`."""

    name = "lab06_plugin"
    title = "Lab 06: a plugin of your own"
    artefacts: ClassVar = {"rope.cu": 64 << 10, "rope_plugin.py": 64 << 10}
    tasks = (
        Task("kernel", "A kernel that rotates right", 4),
        Task("memory", "A kernel that uses memory well", 3),
        Task("plugin", "A plugin that keeps its contract", 3),
    )

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The course's kernel and a plugin around it."""
        (folder / "rope.cu").write_bytes(SOURCE.read_bytes())
        (folder / "rope_plugin.py").write_text(lab06_reference.PLUGIN)

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Run the kernel on the processor and, where there is one, on a GPU; ask the plugin what TensorRT would ask."""
        outcomes: tuple[Outcome, ...] = ()
        figures: dict[str, float] = {}
        if only != "plugin":
            outcomes, figures = self._kernel(folder / "rope.cu", bench, only)
        if only in (None, "plugin"):
            outcomes += (self._plugin(folder / "rope_plugin.py", bench),)
        return Examination(outcomes, figures=figures)

    def _kernel(self, file: Path, bench: Bench, only: str | None) -> tuple[tuple[Outcome, ...], dict[str, float]]:
        tasks = [only] if only else ["kernel", "memory"]
        rng = bench.rng()
        try:
            source = read_text(file, self.artefacts[file.name])
            runs = run_kernel(source, [*watched_cases(rng), *(cases(rng) if "kernel" in tasks else [])], bench.launcher)
        except EngineError as error:
            return self.nothing(str(error), _hint_for_source(str(error)), tasks), {}
        watched = {run: traffic(run) for run in runs if run.case.watched and run.right}
        figures = {"rotations": float(len(runs)), "right": float(sum(run.right for run in runs))}
        if reason := serial(watched.values()):
            return self.nothing(
                reason, "Which thread rotates which pair? blockIdx, blockDim and threadIdx tell each its number.", tasks
            ), figures
        outcomes = []
        if "kernel" in tasks:
            outcomes.append(self._judged("kernel", self._rotations(source, runs, bench)))
        if "memory" in tasks:
            outcomes.append(self._judged("memory", self._memory(source, runs, watched, bench)))
        return tuple(outcomes), figures

    def _rotations(self, source: str, runs: Sequence[Run], bench: Bench) -> Judgement:
        judged = judge_rotations(runs)
        if judged.tier != "full" or not lab06_gpu.usable():
            return judged
        try:
            wrong = lab06_gpu.wrong_on_gpu(source, _ODD_SHAPE, bench.rng(), bench.launcher)
        except EngineError as error:
            return Judgement(
                "partial", f"{judged.message} On the GPU: {error}", "Compile it with nvcc: the same error appears there."
            )
        if wrong:
            hint = "Do all products of sizes and indices fit into 32 bits? int64_t is 64 bits wide."
            return Judgement("partial", f"{judged.message} On the GPU: {wrong}.", hint)
        return Judgement("full", f"{judged.message} So are those on the GPU, up to shape {lab06_gpu.BIG}.")

    def _memory(self, source: str, runs: Sequence[Run], watched: dict[Run, Traffic], bench: Bench) -> Judgement:
        wrong = [run for run in runs if run.case.watched and not run.right]
        if wrong:
            return Judgement(
                "none", f"A wrong kernel's traffic says nothing: {wrong[0].message()}", "Get the numbers right first."
            )
        if not lab06_gpu.usable():
            return self._compiled(source, judge_memory(watched), watched, bench)
        case = lab06_gpu.big_case(bench.rng())
        try:
            yours = lab06_gpu.GpuKernel.compile(source, bench.launcher)
            if yours.wrong_numbers(case, step=97):
                return Judgement(
                    "none", "On the GPU it is wrong, and a wrong kernel has no speed.", "Get the numbers right first."
                )
            return judge_speed(
                case, yours.launch_s(case), *lab06_gpu.reference_s(case, bench.launcher), judge_memory(watched).hint
            )
        except EngineError as error:
            return Judgement("none", str(error), "Compile it with nvcc and run it: the same error appears there.")

    def _compiled(self, source: str, judged: Judgement, watched: dict[Run, Traffic], bench: Bench) -> Judgement:
        """What nvcc makes of a kernel that asks for the right accesses, where there is nvcc."""
        if judged.tier != "full":
            return judged
        try:
            return judge_memory(watched, count_accesses(compile_ptx(source, bench.launcher)))
        except EngineError as error:
            if "does not compile. Line" not in str(error):
                return judged  # nvcc is missing or does not work here
            hint = "The host's compiler is content, nvcc is not: what does your line need that a GPU does not have?"
            return Judgement("partial", f"{judged.message} With nvcc, {error}", hint)

    def _plugin(self, file: Path, bench: Bench) -> Outcome:
        try:
            checks = check_contract(read_text(file, self.artefacts[file.name]), bench.rng(), bench.launcher)
        except BindingsUnavailable as error:
            return self.outcome("plugin", "inconclusive", f"Not examined, TensorRT's bindings are missing: {error}", share=0.0)
        except EngineError as error:
            hint = (
                "Task 3 writes it: run its cell." if "is missing" in str(error) else "Read the line of the error in your file."
            )
            return self.outcome("plugin", "none", str(error), hint)
        return self._judged("plugin", _judge_contract(checks))

    def _judged(self, task: str, judged: Judgement) -> Outcome:
        return self.outcome(task, judged.tier, judged.message, judged.hint, share=1.0 if judged.tier == "full" else 0.5)


def _judge_contract(checks: Sequence[Check]) -> Judgement:
    broken = [check for check in checks if check.wrong]
    said = f"{len(checks) - len(broken)} of {len(checks)} parts of the contract kept on the bindings of TensorRT 10.16."
    if not broken:
        return Judgement("full", said)
    tier = "partial" if len(broken) <= MOST_BROKEN else "none"
    found = " ".join(f"Broken, {check.title}: {check.wrong}." for check in broken)
    hints = dict.fromkeys(check.hint for check in broken)
    return Judgement(tier, f"{said} {found}", " ".join(hints))


def _hint_for_source(error: str) -> str:
    for words, hint in (
        ("is missing", "Task 1 writes it: run its cell, then this one again."),
        (
            "<<<...>>>",
            "As in lecture 9: a config with gridDim, blockDim and stream, then cudaLaunchKernelEx(&config, kernel, arguments...).",
        ),
        ("still empty", "Write the missing part in task 1 and run its cell, which writes rope.cu."),
        ("all threads share", "Each thread computes its own number, from blockIdx, blockDim and threadIdx."),
        ("which a kernel cannot call", "A kernel computes alone: no library, no file, no output. What do you need it for?"),
        (
            "does not compile",
            "The line is one of rope.cu. Compare it with the declarations above it, and read the first error only.",
        ),
    ):
        if words in error:
            return hint
    return "A kernel is plain C++ with the headers of the skeleton."


lab = RopeLab()
