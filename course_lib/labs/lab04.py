"""Lab 04, mixed precision: FP16 for an encoder whose numbers do not fit into it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from course_lib.engines import ModelSource, Plan
from course_lib.errors import BuildError, CourseError, EngineError, PrecisionError, RecipeError
from course_lib.labs import lab04_findings, lab04_reference, lab04_speed
from course_lib.labs.answers import fresh_images
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task
from course_lib.labs.emulation import emulated
from course_lib.labs.handed_in import missing
from course_lib.labs.lab04_error import PARTIAL_DB, Error, error
from course_lib.labs.lab04_kernels import Kernels, prove, reference_kernels, runnable
from course_lib.labs.lab04_reference import BATCH, ROWS
from course_lib.labs.operators import CONTROL_FLOW, operators
from course_lib.labs.reference import ours
from course_lib.recipe import Recipe

# Kernels in FP32 more than the reference has; and attention kernels that may be split for half of the points.
# Measured: the reference has 5 of 39; scores kept in FP32 7 and one attention split, whole norms kept 12, two whole blocks kept 33,
# everything FP32 but the attentions 31, FP32 with casts to FP16 and back between its layers 40 to 56.
SPARE, PARTIAL_SPARE, PARTIAL_SPLIT = 2, 10, 1
OLD_BUILDER = "TensorRT 8.6 takes types for permissions and shows one layer: ONNX Runtime computed this, TensorRT for RTX made the kernels."
# Findings that may be wrong for half of the points. A limit on the magnitude alone makes 4 mistakes: three nodes that overflow and do no
# harm are named, and the norm whose variance vanishes is not.
MISJUDGED = 4
_FOUND_ON = 64  # fresh digits
# Hints for task 1.
VANISHED = "FP16 has two ends: below 6e-8 it stores 0. Which tensors of the FP32 network lie there, and which node divides by their root?"
HARMLESS = "Infinity can give the right result: x / (1 + infinity) is 0. Name a node only if the logits change when it alone is in FP16."
BY_MAGNITUDE = (
    "A limit of 65 504 decides nothing: some overflows change no logit, and some numbers break because they are below 6e-8. "
    "Rank the nodes at both ends of FP16 by the error of the logits."
)
ONE_AT_A_TIME = "Reduce one node at a time: a node is guilty if the logits change although everything else stays in FP32."
MAGNITUDE = "The largest magnitude is one of the FP32 network, over what the node reads and what it writes."


class MixedPrecision(Lab):
    """Hand in `findings.toml`, `model.onnx` and `recipe.toml`."""

    name = "lab04_mixed_precision"
    title = "Lab 04: mixed precision"
    artefacts: ClassVar = {"findings.toml": lab04_findings.MAX_BYTES, "model.onnx": 16 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("find", "What breaks in FP16", 2),
        Task("error", "FP16 that answers like FP32", 4),
        Task("kernels", "FP16 where it pays", 4),
    )
    source = ModelSource("course_lib.labs.lab04_network:loud_encoder")

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The scores' scale moved before the product, squares and one MLP kept in FP32. It is the same for every builder."""
        lab04_findings.write(lab04_reference.findings(), folder / "findings.toml")
        (folder / "model.onnx").write_bytes(lab04_reference.serialized())
        lab04_reference.RECIPE.save(folder / "recipe.toml")

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Check the findings, then count the engine's kernels, then compare its answers: those of another function do not count."""
        found = (self._find(folder / "findings.toml", bench),) if only in (None, "find") else ()
        if only == "find":
            return Examination(found)
        try:
            recipe = _recipe(folder)
            plan = self._prove(folder / "model.onnx", recipe, bench)
        except (RecipeError, BuildError) as problem:
            return Examination((*found, *self.nothing(str(problem), _hint_for_build(problem), ("error", "kernels"))))
        try:
            examined = self._run(folder / "model.onnx", recipe, plan, bench)
        except (EngineError, BuildError) as problem:
            hint = "Run emulate(onnx.load('model.onnx')) in the notebook, as the cell behind task 2 does: the error appears there too."
            return Examination((*found, *self.nothing(str(problem), hint, ("error", "kernels"))), plan)
        return Examination((*found, *examined.outcomes), plan, examined.comparison, examined.figures)

    def _find(self, path: Path, bench: Bench) -> Outcome:
        try:
            findings = lab04_findings.read(path)
            tokens = fresh_images(bench, _FOUND_ON).tokens()
            judged = lab04_findings.judge(findings, lab04_reference.given(), tokens)
        except CourseError as problem:
            hint = "Names of nodes of the given network, each with the largest number that it reads or writes."
            return self.outcome("find", "none", str(problem), hint)
        said = f"{judged.faults - len(judged.missing)} of the {judged.faults} places that break are found."
        if not judged.wrong:
            return self.outcome("find", "full", said)
        hint = "Infinity is one way to fail. A tensor can overflow on the way and leave finite, wrong logits: which error is too large?"
        if judged.vanished:
            said += " Missing: a place whose numbers are too small for FP16, not too large."
            hint = VANISHED if judged.vanished == judged.missing else hint
        if judged.innocent:
            said += (
                f" Named, and yet harmless alone: {len(judged.innocent)}, such as {(*judged.harmless, *judged.innocent)[0]}."
            )
            if judged.harmless:
                said += f" {len(judged.harmless)} of them overflow, and the logits stay right."
            hint = BY_MAGNITUDE if judged.harmless and judged.vanished else HARMLESS if judged.harmless else ONE_AT_A_TIME
        elif judged.misread:
            said += f" The magnitude is off by more than a factor of 2 for {', '.join(judged.misread[:2])}."
            hint = VANISHED if judged.vanished else MAGNITUDE
        return self.outcome("find", "partial" if judged.wrong <= MISJUDGED else "none", said, hint, share=0.5)

    def _prove(self, model: Path, recipe: Recipe, bench: Bench) -> Plan:
        """The plan that shows the hand-in's kernels, after a look for operators that would hide some."""
        if hidden := CONTROL_FLOW & operators(model.read_bytes(), launcher=bench.launcher):
            raise BuildError(
                f"model.onnx holds {', '.join(sorted(hidden))}, whose kernels and types the layer table does not tell apart"
            )
        return prove(model, recipe, bench)

    def _run(self, model: Path, recipe: Recipe, plan: Plan, bench: Bench) -> Examination:
        """What the graph says, computed with every rounding that it asks for: the same figures on every machine."""
        yours, reference = Kernels.of(plan.layers), reference_kernels(bench.builder)
        if yours.wide > reference.total // 2:
            message = f"{yours.wide} of {yours.total} kernels compute in FP32: that is no FP16 engine."
            hint = "Which nodes break alone? Only they, and those that read what they make, have to stay in FP32."
            return Examination(self.nothing(message, hint, ("error", "kernels")), plan)
        on_cpu = replace(bench, runner="onnxruntime")
        with ExitStack() as stack:
            given = stack.enter_context(bench.baseline(self.source))
            with ours():
                reference_copy = runnable(_reference_copy(), lab04_reference.RECIPE, on_cpu)
                theirs = stack.enter_context(on_cpu.reference(reference_copy))
            copy = runnable(emulated(model.read_bytes(), launcher=bench.launcher), recipe, on_cpu)
            found = error(given, theirs, stack.enter_context(on_cpu.engine(copy)), bench)
        figures = {
            "sqnr_db": found.sqnr_db,
            "sqnr_db_reference": found.reference_db,
            "fp16_share": yours.share,
            "fp16_share_reference": reference.share,
            "kernels_fp32": float(yours.wide),
            "attention_fused": float(yours.attention),
        }
        right = self._error(found)
        if bench.opset is not None:
            right = replace(right, message=f"{right.message} {OLD_BUILDER}")
        if right.tier == "none":
            wrong = self.outcome("kernels", "none", "The kernels of a wrong engine do not count.", right.hint)
            return Examination((right, wrong), plan, figures=figures)
        kernels, comparison = self._kernels(yours, reference), None
        if lab04_speed.graded(bench) and kernels.tier == "full":
            speed = lab04_speed.measured(model, recipe, plan, bench)
            kernels, comparison = self._with_speed(kernels, speed), speed.comparison
        return Examination((right, kernels), plan, comparison, figures)

    def _error(self, found: Error) -> Outcome:
        said = f"Logits at {found.sqnr_db:.0f} dB of PyTorch's at {found.rows} rows a digit, the reference's at {found.reference_db:.0f}."
        if found.tier == "full":
            return self.outcome("error", "full", said)
        said += f" Full points need {found.needed_db:.0f} dB, half {PARTIAL_DB:.0f}."
        if found.lost:
            batch, rows = found.lost[0]
            said = f"NaN or infinity in {len(found.lost)} requests, first with {batch} digits of {rows} rows."
            hint = "Which tensor is the first that is not finite? What comes behind a kept node reads FP16 again: is that reader kept too?"
        elif found.tier == "none":
            hint = "Finite is not right. Squares that overflow make a norm divide by infinity, and its output is zero, not NaN."
        else:
            hint = "Something small still overflows, or rounds more coarsely than FP16. Rank your own model's nodes again."
        return self.outcome("error", found.tier, said, hint, share=0.5)

    def _kernels(self, yours: Kernels, reference: Kernels) -> Outcome:
        said = (
            f"{yours.wide} of {yours.total} kernels compute in FP32 ({100 * yours.share:.0f} % in FP16), the reference's {reference.wide} "
            f"of {reference.total}; {yours.attention} of {reference.attention} attentions are one kernel."
        )
        more, split = yours.wide - reference.wide, reference.attention - yours.attention
        if more <= SPARE and split <= 0:
            return self.outcome("kernels", "full", said)
        said += f" Full points need at most {reference.wide + SPARE} in FP32 and every attention in one FP16 kernel."
        hint = "Does every node that you keep have to be kept? A kept node takes its neighbours' kernels along."
        if split > 0:
            hint = "FP32 splits attention. Can its product be made small before it overflows, so that nothing in it has to be kept?"
        fits = more <= PARTIAL_SPARE and split <= PARTIAL_SPLIT
        return self.outcome("kernels", "partial" if fits else "none", said, hint, share=0.5)

    def _with_speed(self, kernels: Outcome, speed: lab04_speed.Speed) -> Outcome:
        """On a GPU, what the kernels are for."""
        said = f"{kernels.message} {speed.message()}"
        if speed.fast:
            return replace(kernels, message=said)
        hint = "Which kernels does the FP32 engine not have? Casts cost a pass over a tensor each."
        return self.outcome("kernels", "partial" if speed.fast is False else "inconclusive", said, hint, share=0.5)


def _recipe(folder: Path) -> Recipe:
    """The hand-in's recipe, after a look whether it is for this lab."""
    for name in ("model.onnx", "recipe.toml"):
        if not (folder / name).is_file():
            raise BuildError(missing(name))
    recipe = Recipe.load(folder / "recipe.toml")
    if recipe.precision != "fp16":
        raise PrecisionError(f'recipe.toml says precision = "{recipe.precision}", this lab asks for "fp16"')
    if len(recipe.profiles) != 1:
        raise BuildError(
            f"recipe.toml has {len(recipe.profiles)} profiles: kernels are counted here, and each profile has its own"
        )
    shapes = recipe.profiles[0].root.get("tokens")
    for batch, rows in ((batch, rows) for batch in BATCH for rows in ROWS):
        if shapes is None or not shapes.contains((batch, rows, 32)):
            raise BuildError(f"recipe.toml's profile has no room for {batch} x {rows} rows: the service sends {_service()}")
    return recipe


def _service() -> str:
    return f"{BATCH[0]} to {BATCH[1]} digits of {ROWS[0]} to {ROWS[1]} rows"


@cache
def _reference_copy() -> bytes:
    return emulated(lab04_reference.serialized())


def _hint_for_build(problem: CourseError) -> str:
    if isinstance(problem, PrecisionError):
        return "`precision` is a promise about the graph. Which function of the course writes FP16 into a graph?"
    if "is missing" in str(problem):
        return "Task 2 writes model.onnx and recipe.toml: solve it first, then run its cell again."
    if "profile" in str(problem):
        return f"Batch and rows are dynamic: the notebook's `service` covers {_service()}."
    return "Build it in the notebook with course_lib.engines.build: the same error appears there."


lab = MixedPrecision()
