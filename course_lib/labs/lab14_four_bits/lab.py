"""Lab 14, four bits: the decoder's weights in as few bits as a budget of lost bits per byte allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from course_lib.errors import MISSING_FILE, BuildError, EngineError
from course_lib.labs.framework.criteria import tier, together
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent
from course_lib.labs.framework.sandboxed.learner_code import encoded_with_strides
from course_lib.labs.framework.submission_files import missing, submitted
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab14_four_bits import graph_file, plans
from course_lib.labs.lab14_four_bits.graph_file import MODEL
from course_lib.labs.lab14_four_bits.judge import functions, packing, quality, searching
from course_lib.labs.lab14_four_bits.judge.packing import Packing
from course_lib.labs.lab14_four_bits.judge.quality import FULL_BITS, HALF_BITS
from course_lib.labs.lab14_four_bits.sandboxed.call_functions import PACKING, SCALES
from course_lib.labs.lab14_four_bits.stored import Stored

_GRAPH_TASKS = ("size", "plan")
_FAILED_HINT = "Import the file in the notebook and call its functions: the same error appears there."


class FourBits(Lab):
    """The submission is `packing.py`, `scales.py` and `decoder.onnx`."""

    name = "lab14_four_bits"
    title = "Lab 14: four bits"
    artifacts: ClassVar = {PACKING: functions.MAX_BYTES, SCALES: functions.MAX_BYTES, MODEL: graph_file.MAX_BYTES}
    tasks = (
        Task("packing", "Two codes in a byte", 2),
        Task("search", "A search for the scales", 3),
        Task("size", "Few bits within the budget", 3),
        Task("plan", "Weights that the kernels read as they are stored", 2),
    )
    build_hints: ClassVar = {
        MISSING_FILE: "Task 3 writes decoder.onnx. Solve it, then run its last cell again.",
        "": "The message names a product, node or constant. Compare `Int4(packed, scales).values()` with the given weight in the notebook.",
    }

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Searched scales, and a format for each product from what it loses."""
        from course_lib.labs.lab14_four_bits.reference import choice

        choice.write_files(folder)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Call the functions on secret arrays; then read the graph, run its weights on secret text, and compile them."""
        outcomes: list[Outcome] = []
        figures: dict[str, float] = {}
        if only in (None, "packing"):
            outcomes.append(self._packing(folder / PACKING, examiner))
        if only in (None, "search"):
            outcomes.append(self._search(folder / SCALES, examiner))
        if wanted := [task for task in _GRAPH_TASKS if only in (None, task)]:
            outcomes += self._graph(folder, examiner, wanted, figures)
        return Examination(tuple(outcomes), figures=figures)

    def _asked(
        self, task: str, source: Path, calls: functions.Calls, examiner: Examiner
    ) -> dict[str, list[functions.Answer]] | Outcome:
        """The answers of a file's functions, or the outcome if there are none."""
        if not source.is_file():
            hint = "The task's first cell writes it. Run it, then check again."
            return self.outcome(task, "none", EngineError(missing(source.name), code=MISSING_FILE), hint)
        examiner.begins(f"{task}: your functions on secret arrays", 2)
        try:
            return functions.ask(source, calls, examiner.bare_launcher or examiner.launcher)
        except EngineError as error:
            return self.outcome(task, "none", EngineError(f"{source.name}: {error}"), _FAILED_HINT)

    def _packing(self, source: Path, examiner: Examiner) -> Outcome:
        rng = examiner.rng()
        to_pack, to_unpack = packing.questions(rng), packing.questions(rng)
        calls: functions.Calls = {
            "pack": [(encoded_with_strides(one.codes),) for one in to_pack],
            "unpack": [(encoded_with_strides(one.given), one.codes.shape) for one in to_unpack],
        }
        found = self._asked("packing", source, calls, examiner)
        if isinstance(found, Outcome):
            return found
        parts: dict[str, Packing] = {}
        for function, asked, judge in (
            ("pack", to_pack, packing.judged_pack),
            ("unpack", to_unpack, packing.judged_unpack),
        ):
            if function in found:
                parts[function] = judge(asked, found[function])
            else:
                hint = "The grader calls your functions by their names. Keep the signatures that the task gives."
                parts[function] = Packing(0, len(asked), functions.undefined(PACKING, function), hint)
        wrong = [part for part in parts.values() if part.said]
        said = "; ".join(f"{function}: {part.right} of {part.total} arrays are right" for function, part in parts.items())
        if not wrong:
            return self.outcome("packing", "full", f"{said}.")
        reached = "partial" if len(wrong) == 1 else "none"
        return self.outcome("packing", reached, f"{said}. {wrong[0].said}", wrong[0].hint, share=0.5)

    def _search(self, source: Path, examiner: Examiner) -> Outcome:
        asked = searching.questions(examiner.rng())
        calls = {"search": [(one.weight, one.block, one.importance) for one in asked]}
        found = self._asked("search", source, calls, examiner)
        if isinstance(found, Outcome):
            return found
        if "search" not in found:
            hint = "The grader calls your function by its name. Keep the signature that task 2 gives."
            return self.outcome("search", "none", functions.undefined(SCALES, "search"), hint)
        answered = [searching.Searched(*pair) for pair in zip(asked, found["search"], strict=True)]
        said, hint = searching.problem(answered)
        if said:
            return self.outcome("search", "none", said, hint)
        if self._lacks_reference():
            return self._search_without_reference(answered)
        full, half = searching.criteria(answered)
        context, hint = searching.recognized(answered) if tier(full, half)[0] != "full" else ("", "")
        return self.judged("search", full, half, hint, context=context)

    def _lacks_reference(self) -> bool:
        # By its full name: the package is a placeholder, too, and would answer for the name `scales`.
        return absent(import_module("course_lib.labs.lab14_four_bits.reference.scales"))

    def _search_without_reference(self, answered: Sequence[searching.Searched]) -> Outcome:
        """In the learner's bundle: whether the search gains what every good one gains. The rest is open."""
        full, half = searching.criteria_without_reference(answered)
        hint = "Try smaller scales for each block, and weigh each squared error with its importance."
        return self.so_far("search", together(full, half), hint)

    def _graph(self, folder: Path, examiner: Examiner, wanted: Sequence[str], figures: dict[str, float]) -> Sequence[Outcome]:
        examiner.begins("size: your weights on secret text", 10)
        try:
            stored = graph_file.examined(submitted(folder, MODEL).read_bytes(), launcher=examiner.launcher)
            quality.check_weights(stored)
            loss = quality.lost(stored, examiner.seed, examiner.launcher)
        except BuildError as error:
            return self.failed_build(error, wanted)
        except EngineError as error:
            return self.zero_outcomes(error, "Which scale of your graph is far from the largest weight of its block?", wanted)
        bits = quality.bits_per_weight(stored)
        figures |= {"bits_per_weight": bits, "lost_bits_per_byte": loss.mean}
        full, half = quality.criteria(bits, loss)
        outcomes = (
            [self.judged("size", full, half, _hint_for_size(bits, quality.within_budget(loss)))] if "size" in wanted else []
        )
        if "plan" in wanted:
            outcomes.append(self._plan(stored, loss, examiner))
        return outcomes

    def _plan(self, stored: Mapping[str, Stored], loss: quality.Lost, examiner: Examiner) -> Outcome:
        if not quality.within_budget(loss):
            said = f"The decoder loses {loss} bits per byte, which is above the budget, so it is not compiled."
            return self.outcome("plan", "none", said, "Solve task 3 first.")
        try:
            found = plans.compiled(stored, examiner)
        except BuildError as error:
            return self.failed_build(error, ["plan"])[0]
        context = f"Expanded by another kernel in each call: {', '.join(found.expanding)}." if found.expanding else ""
        hint = "Which block do these products have? Print the kernels of one of them for each block size."
        if not found.expanding:
            hint = "Print the constants of the kernels of each product, with their types. Which are larger than in your file?"
        return self.judged("plan", *found.criteria(FULL_BITS, HALF_BITS), hint, context=context)


def _hint_for_size(bits: float, within: bool) -> str:
    if not within:
        return "Measure each product alone: which of them lose most in INT4? They may need smaller blocks or FP8."
    if bits > HALF_BITS:
        return "Which products hardly lose anything in INT4? Begin with INT4 everywhere, and give more bits only to those that need them."
    return "For each product and form: how much loss does it save, and how many more bits does it store? Take the best ratio first."


lab = FourBits()
