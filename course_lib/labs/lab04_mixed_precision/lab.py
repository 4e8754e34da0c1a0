"""Lab 04, mixed precision: FP16 for an encoder whose values exceed its range."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from course_lib.engines import ModelSource, Plan
from course_lib.errors import (
    FIXED_DIMENSION,
    MISSING_FILE,
    PRECISION,
    PROFILE,
    BuildError,
    CourseError,
    EngineError,
    RecipeError,
)
from course_lib.labs.framework import one_graph
from course_lib.labs.framework.answers import check_pace, fresh_images
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.emulation import emulated
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent, ours
from course_lib.labs.framework.submission_files import model_and_recipe
from course_lib.labs.framework.task import UNUSUAL, Outcome, Task
from course_lib.labs.lab04_mixed_precision import findings as lab04_findings
from course_lib.labs.lab04_mixed_precision import reference as lab04_reference
from course_lib.labs.lab04_mixed_precision.given_graph import given
from course_lib.labs.lab04_mixed_precision.judge import ablation
from course_lib.labs.lab04_mixed_precision.judge import speed as lab04_speed
from course_lib.labs.lab04_mixed_precision.judge.output_error import FULL_FLOOR_DB, PARTIAL_DB, Error, error
from course_lib.labs.lab04_mixed_precision.kernels import (
    ATTENTIONS,
    Kernels,
    fused_attentions,
    prove,
    reference_kernels,
    runnable,
    split_attentions,
)
from course_lib.recipe import Recipe

# Kernels in FP32 more than the reference has; and attention kernels that may be split for half of the points.
# Measured: the reference has 5 of 39; scores kept in FP32 7 and one attention split, whole norms kept 12, two whole blocks kept 33,
# everything FP32 but the attentions 31, FP32 with casts to FP16 and back between its layers 40 to 56.
SPARE, PARTIAL_SPARE, PARTIAL_SPLIT = 2, 10, 1
OLD_BUILDER = (
    "TensorRT 8.6 treats types as permissions and shows one layer. "
    "ONNX Runtime computed these answers, and TensorRT for RTX built the kernels."
)
# Findings that may be wrong for half of the points. A limit on the magnitude alone makes 4 mistakes: three nodes that overflow and do no
# harm are named, and the norm whose variance vanishes is not.
MISJUDGED = 4
_ROWS, _BATCH = (16, 48), (1, 32)  # the service: that many pixel rows per digit, that many digits per request
_SERVICE = f"{_BATCH[0]} to {_BATCH[1]} digits of {_ROWS[0]} to {_ROWS[1]} rows"
_FOUND_ON = 64  # fresh digits
# Hints for task 1.
VANISHED = "FP16 stores numbers below 6e-8 as 0. Which tensors of the FP32 network are that small, and which node divides by their root?"
HARMLESS = "Infinity can give the right result: x / (1 + infinity) is 0. Name a node only if the logits change when it alone is in FP16."
BY_MAGNITUDE = (
    "A limit of 65 504 is not enough. Some overflows do not change the logits, and some nodes break on numbers below 6e-8. "
    "Rank the nodes at both ends of FP16 by the error of the logits."
)
ONE_AT_A_TIME = "Reduce one node at a time: a node is guilty if the logits change although everything else stays in FP32."
_SPLIT = "FP32 splits attention. Can its product be made small before it overflows, so that none of its nodes has to be kept?"
MAGNITUDE = "Measure the largest magnitude in the FP32 network, over what the node reads and what it writes."


class MixedPrecision(Lab):
    """The submission is `findings.toml`, `model.onnx` and `recipe.toml`."""

    name = "lab04_mixed_precision"
    title = "Lab 04: mixed precision"
    artifacts: ClassVar = {"findings.toml": lab04_findings.MAX_BYTES, "model.onnx": 16 << 20, "recipe.toml": 64 << 10}
    tasks = (
        Task("find", "What breaks in FP16", 2),
        Task("error", "FP16 that answers like FP32", 4),
        Task("kernels", "FP16 wherever it helps", 4),
    )
    timed_tasks = ("kernels",)
    build_hints: ClassVar = {
        PRECISION: "`precision` is a statement about the graph. Which function of the course writes FP16 into a graph?",
        MISSING_FILE: "Task 2 writes model.onnx and recipe.toml. Solve it, then run its cell again.",
        **dict.fromkeys((PROFILE, FIXED_DIMENSION), f"Batch and rows are dynamic: the notebook's `service` covers {_SERVICE}."),
    }
    source = ModelSource("course_lib.labs.lab04_mixed_precision.network:loud_encoder")

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Move the scale of the scores before the product, and keep the squares and one MLP in FP32, for every builder alike."""
        lab04_findings.write(lab04_reference.findings(), folder / "findings.toml")
        (folder / "model.onnx").write_bytes(lab04_reference.serialized())
        lab04_reference.RECIPE.save(folder / "recipe.toml")

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Check the findings, then count the engine's kernels, then compare its answers: those of another function do not count."""
        found = (self._find(folder / "findings.toml", examiner),) if only in (None, "find") else ()
        if only == "find":
            return Examination(found)
        with tempfile.TemporaryDirectory() as scratch:
            network = self._network(folder, Path(scratch), examiner)
        return replace(network, outcomes=(*found, *network.outcomes))

    def _network(self, folder: Path, scratch: Path, examiner: Examiner) -> Examination:
        try:
            model, recipe = model_and_recipe(folder, "fp16")
            _check_profiles(recipe)
            model = one_graph.fixed(model, scratch, examiner)
            plan = prove(model, recipe, examiner)
        except (RecipeError, BuildError) as problem:
            return Examination(self.failed_build(problem, ("error", "kernels")))
        try:
            return self._run(model, recipe, plan, examiner)
        except (EngineError, BuildError) as problem:
            hint = "Run emulate(onnx.load('model.onnx')) in the notebook, as the cell after task 2 does: the error appears there too."
            return Examination(self.zero_outcomes(problem, hint, ("error", "kernels")), plan)

    def _find(self, path: Path, examiner: Examiner) -> Outcome:
        try:
            findings = lab04_findings.read(path)
            tokens = fresh_images(examiner, _FOUND_ON).tokens()
            judged = lab04_findings.judge(findings, given(), tokens)
        except CourseError as problem:
            hint = "Write names of nodes of the given network, each with the largest number that it reads or writes."
            return self.outcome("find", "none", problem, hint)
        said = f"{judged.faults - len(judged.missing)} of the {judged.faults} places that break are found."
        if not judged.wrong:
            return self.outcome("find", "full", said)
        hint = "NaN is one way to fail. A tensor can overflow and still leave finite, wrong logits. Which error is too large?"
        if judged.vanished:
            said += " Missing: a place whose numbers are too small for FP16, not too large."
            hint = VANISHED if judged.vanished == judged.missing else hint
        if judged.innocent:
            said += (
                f" Named, although harmless alone: {len(judged.innocent)}, such as {(*judged.harmless, *judged.innocent)[0]}."
            )
            if judged.harmless:
                said += f" {len(judged.harmless)} of them overflow, and the logits stay right."
            hint = BY_MAGNITUDE if judged.harmless and judged.vanished else HARMLESS if judged.harmless else ONE_AT_A_TIME
        elif judged.misread:
            said += f" The magnitude is off by more than a factor of 2 for {', '.join(judged.misread[:2])}."
            hint = VANISHED if judged.vanished else MAGNITUDE
        return self.outcome("find", "partial" if judged.wrong <= MISJUDGED else "none", said, hint, share=0.5)

    def _run(self, model: Path, recipe: Recipe, plan: Plan, examiner: Examiner) -> Examination:
        """The outputs of the graph with every rounding that it specifies, so that the figures are the same on every machine."""
        yours = Kernels.of(plan.layers)
        reference = None if absent(lab04_reference) else reference_kernels(examiner.builder)
        if reference and yours.wide > (most := reference.total // 2):
            said = f"{yours.wide} of {yours.total} kernels compute in {yours.wide_types}; at most {most} may"
            message = f"{said}, so this is not an FP16 engine."
            hint = "Which nodes break alone? Only these nodes, and the nodes that read their outputs, have to stay in FP32."
            return Examination(self.zero_outcomes(message, hint, ("error", "kernels")), plan)
        on_cpu = replace(examiner, runner="onnxruntime")
        with ExitStack() as stack:
            given = stack.enter_context(examiner.baseline(self.source))
            theirs = None
            if reference:
                with ours():
                    theirs = stack.enter_context(on_cpu.reference(runnable(_reference_copy(), lab04_reference.RECIPE, on_cpu)))
            rounded = emulated(model.read_bytes(), launcher=examiner.launcher)
            copy = runnable(rounded, recipe, on_cpu)
            yours_copy = stack.enter_context(on_cpu.engine(copy))
            check_pace(given, yours_copy, fresh_images(examiner, 1).tokens(), "tokens")
            found = error(given, theirs, yours_copy, examiner)
        figures = {
            "sqnr_db": found.sqnr_db,
            "fp16_share": yours.share,
            "kernels_fp32": float(yours.wide),
            "attention_fused": float(yours.attention),
        }
        if reference and found.reference_db is not None:
            figures |= {"sqnr_db_reference": found.reference_db, "fp16_share_reference": reference.share}
        right = self._error(found)
        if examiner.opset is not None:
            right = replace(right, message=f"{right.message} {OLD_BUILDER}")
        if reference and found.far_better:
            return Examination(self._unusual(right, yours, reference), plan, figures=figures)
        if right.tier == "none":
            wrong = self.outcome("kernels", "none", "The kernels of a wrong engine do not count.", right.hint)
            return Examination((right, wrong), plan, figures=figures)
        foreign = _foreign_attentions(rounded, recipe, plan, on_cpu)
        if reference is None:
            return Examination(
                (right, self._kernels_so_far(replace(yours, attention=yours.attention - foreign))), plan, figures=figures
            )
        kernels, comparison = self._kernels(replace(yours, attention=yours.attention - foreign), reference, foreign), None
        if examiner.on_gpu and kernels.tier == "full":
            speed = lab04_speed.measured(model, recipe, plan, examiner)
            kernels, comparison = self._with_speed(kernels, speed), speed.comparison
        return Examination((right, kernels), plan, comparison, figures)

    def _unusual(self, right: Outcome, yours: Kernels, reference: Kernels) -> tuple[Outcome, ...]:
        """Answers that FP16 cannot give are an instructor's to explain: something else may have computed them."""
        said = "No FP16 engine that is known is that close to FP32. An instructor will look at it."
        hint = "Which of your layers compute the answers? Those that read FP32 compute in FP32."
        messages = {"error": right.message, "kernels": self._kernels(yours, reference).message}
        return tuple(
            self.outcome(name, "inconclusive", f"{message} {said}", hint, share=0.0, code=UNUSUAL)
            for name, message in messages.items()
        )

    def _error(self, found: Error) -> Outcome:
        said = f"The logits have {found.sqnr_db:.0f} dB SQNR at {found.rows} rows per digit"
        said += "." if found.reference_db is None else f"; the reference has {found.reference_db:.0f} dB."
        if found.tier == "full" and found.reference_db is None:
            floor = Criterion("SQNR of the logits", f"{found.sqnr_db:.0f} dB", f"at least {FULL_FLOOR_DB:.0f} dB", True)
            return self.so_far("error", [floor], "", context=f"Every request has finite logits. {said}")
        if found.tier == "full":
            return self.outcome("error", "full", said)
        said += f" Full points need at least {found.needed_db:.0f} dB, half of the points at least {PARTIAL_DB:.0f} dB."
        if found.lost:
            batch, rows = found.lost[0]
            said = f"NaN or infinity in {len(found.lost)} requests, first with {batch} digits of {rows} rows."
            hint = "Which tensor is the first that is not finite? A node after a kept node reads FP16 again. Is that reader kept too?"
        elif found.wrong and found.sqnr_db >= PARTIAL_DB:
            batch, rows = found.wrong[0]
            said = f"{len(found.wrong)} requests have other answers than the rest, first {batch} digits of {rows} rows."
            hint = "The service sends every batch from 1 to 32 and 16 to 48 rows. What in your graph depends on these sizes?"
        elif found.tier == "none":
            hint = (
                "Finite logits can be wrong. If squares overflow, a norm divides by infinity, and its output is zero, not NaN."
            )
        else:
            hint = "A tensor still overflows, or rounds more coarsely than FP16. Rank the nodes of your own model again."
        return self.outcome("error", found.tier, said, hint, share=0.5)

    def _kernels_so_far(self, yours: Kernels) -> Outcome:
        """The counts without the reference's, which alone tells how many attentions this builder can fuse."""
        fused = min(yours.attention, ATTENTIONS - -(-yours.products // 2))
        said = f"{yours.wide} of {yours.total} kernels compute in {yours.wide_types} ({100 * yours.share:.0f} % in FP16)."
        attentions = Criterion(
            "attentions in one FP16 kernel", f"{max(0, fused)} of {ATTENTIONS}", "at least one", fused > 0, HALF
        )
        return self.so_far("kernels", [attentions], _SPLIT, context=said)

    def _kernels(self, yours: Kernels, reference: Kernels, foreign: int = 0) -> Outcome:
        more = yours.wide - reference.wide
        # Two products of activations are a split attention, whatever other attention the graph has in its place.
        split = min(reference.attention, max(reference.attention - yours.attention, -(-yours.products // 2)))
        said = (
            f"{yours.wide} of {yours.total} kernels compute in {yours.wide_types} ({100 * yours.share:.0f} % in FP16); "
            f"the reference has {reference.wide} of {reference.total}. "
            f"{reference.attention - split} of {reference.attention} attentions are one kernel."
        )
        if foreign:
            verb, auxiliary = ("is", "does") if foreign == 1 else ("are", "do")
            said += f" {foreign} more {verb} fused, but {auxiliary} not compute an attention of the given network."
        if more <= SPARE and split <= 0:
            return self.outcome("kernels", "full", said)
        said += f" Full points need at most {reference.wide + SPARE} in FP32 and every attention in one FP16 kernel."
        hint = "Does every node that you keep have to be kept? A kept node can also put the nodes next to it into FP32 kernels."
        if split > 0:
            hint = _SPLIT
        fits = more <= PARTIAL_SPARE and split <= PARTIAL_SPLIT
        return self.outcome("kernels", "partial" if fits else "none", said, hint, share=0.5)

    def _with_speed(self, kernels: Outcome, speed: lab04_speed.Speed) -> Outcome:
        """The kernel outcome with the measured speed, on a GPU."""
        said = f"{kernels.message} {speed.message()}"
        if speed.fast:
            return replace(kernels, message=said)
        hint = "Which kernels does the FP32 engine not have? Each cast costs a round trip to memory."
        return self.outcome("kernels", "partial" if speed.fast is False else "inconclusive", said, hint, share=0.5)


def _check_profiles(recipe: Recipe) -> None:
    """Whether the recipe has one profile, which holds every request of the service."""
    if len(recipe.profiles) != 1:
        raise BuildError(
            f"recipe.toml has {len(recipe.profiles)} profiles; this lab needs exactly one, because each profile has its own kernels",
            code=PROFILE,
        )
    shapes = recipe.profiles[0].root.get("tokens")
    for batch, rows in ((batch, rows) for batch in _BATCH for rows in _ROWS):
        if shapes is None or not shapes.contains((batch, rows, 32)):
            raise BuildError(
                f"recipe.toml's profile does not accept {batch} x {rows} rows: the service sends {_SERVICE}", code=PROFILE
            )


def _foreign_attentions(rounded: bytes, recipe: Recipe, plan: Plan, on_cpu: Examiner) -> int:
    """How many fused attentions of the plan are not those of the given network.

    Args:
        rounded: the model as `emulated` writes it.
    """
    found, split = fused_attentions(plan.layers), split_attentions(plan.layers)
    if not found:
        return 0
    copy = ablation.paired(rounded, found, split, launcher=on_cpu.launcher)
    tokens = fresh_images(on_cpu, _BATCH[1]).tokens(_ROWS[0])
    with on_cpu.engine(runnable(copy, recipe, on_cpu)) as engine:
        return ablation.foreign(engine, tokens, on_cpu.rng(), len(found), len(split))


@cache
def _reference_copy() -> bytes:
    return emulated(lab04_reference.serialized())


lab = MixedPrecision()
