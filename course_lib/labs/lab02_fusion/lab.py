"""Lab 02, fusion: a correct network that does not fuse, rewritten as the same function in half the kernels."""

from __future__ import annotations

import json
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
    BuildError,
    CourseError,
    EngineError,
    ExaminerFault,
    PrecisionError,
)
from course_lib.labs.framework import one_graph
from course_lib.labs.framework.answers import check_pace, fresh_images
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent, reference_engine
from course_lib.labs.framework.submission_files import submitted
from course_lib.labs.framework.task import UNUSUAL, Outcome, Task
from course_lib.labs.lab02_fusion import causes as lab02_causes
from course_lib.labs.lab02_fusion import reference_causes
from course_lib.labs.lab02_fusion.causes import PARTS
from course_lib.labs.lab02_fusion.judge.counts import OPSET, RECIPE, costs, given_layers, reference_kernels
from course_lib.labs.lab02_fusion.judge.equivalence import PARTIAL_DB, Equality, equality

SPARE = 1  # kernels more than the reference's that still earn full points
# Shares of the points by the share of the extra kernels that are gone: those that the given network has and the reference does not.
PARTIAL = ((2 / 3, 0.6), (1 / 3, 0.3))
SUSPICIOUS = 4  # that many kernels fewer than the reference's and an instructor has to look: one fewer is the best known
MISJUDGED = 2  # suspects that may be judged wrongly for half of the points

_OF_THE_MODEL = ("equality", "kernels")


class Fusion(Lab):
    """The submission is `model.onnx` and `causes.json`. The engine is built with `RECIPE` for every learner."""

    name = "lab02_fusion"
    title = "Lab 02: fusion"
    artifacts: ClassVar = {"model.onnx": 4 << 20, "causes.json": lab02_causes.MAX_BYTES}
    tasks = (
        Task("equality", "The same function", 3),
        Task("kernels", "Half the kernels", 5),
        Task("causes", "Which parts cost kernels", 2),
    )
    build_hints: ClassVar = {
        PRECISION: "Keep every tensor in float32. Smaller types are the subject of lab 04.",
        MISSING_FILE: "Task 2 writes model.onnx. Solve it, then run its cell again.",
        FIXED_DIMENSION: "The batch has to stay dynamic, 1 to 32. export_onnx keeps it dynamic; in a reshape, write -1 for it.",
        "": "Build it in the notebook with course_lib.engines.build and lab.recipe: the same error appears there.",
    }
    source = ModelSource("course_lib.labs.lab02_fusion.network:slow_classifier")
    recipe = RECIPE

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The network with every suspect rewritten, and the guilty suspects with evidence."""
        (folder / "model.onnx").write_bytes(_exported(opset or OPSET))
        (folder / "causes.json").write_text(json.dumps(reference_causes.EVIDENCE, indent=2))

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Count the kernels, compare the answers, check the evidence."""
        reference_causes.GUILTY  # noqa: B018  (raises ReferenceAbsent in the learner's bundle)
        return self._examined(folder, examiner, only)

    def examine_as_learner(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Without the reference, the answers are compared with the given network's, and open tasks say what was measured."""
        return self._examined(folder, examiner, only)

    def _examined(self, folder: Path, examiner: Examiner, only: str | None) -> Examination:
        causes = () if only in ("equality", "kernels") else (self._causes(folder / "causes.json", examiner),)
        if only == "causes":
            return Examination(causes)
        network = self._network(folder, examiner)
        return replace(network, outcomes=(*network.outcomes, *causes))

    def _network(self, folder: Path, examiner: Examiner) -> Examination:
        """Kernels and equality need each other: neither the given network nor another, faster function earns points."""
        with tempfile.TemporaryDirectory() as scratch:
            return self._judged_network(folder, Path(scratch), examiner)

    def _judged_network(self, folder: Path, scratch: Path, examiner: Examiner) -> Examination:
        try:
            model = one_graph.fixed(submitted(folder, "model.onnx"), scratch, examiner)
            plan = self._build(model, examiner)
        except BuildError as error:
            return Examination(self.failed_build(error, _OF_THE_MODEL))
        figures = _counts(plan, examiner)
        kernels = self._kernels(figures)
        if kernels.tier == "none":
            message = f"Not compared yet, because too few extra kernels are gone. {kernels.message}"
            equal = self.outcome("equality", "none", message, kernels.hint)
            return Examination((equal, kernels), plan, figures=figures)
        try:
            found = self._run(model, plan, examiner)
        except (EngineError, BuildError) as error:
            hint = "Load your engine in the notebook and run batches of 1, 3, 8 and 32: the error appears there too."
            return Examination(self.zero_outcomes(error, hint, _OF_THE_MODEL), plan, figures=figures)
        equal = self._equality(found)
        if equal.tier == "none":
            kernels = self.outcome(
                "kernels", "none", "The kernels do not count, because the function is not the given one.", equal.hint
            )
        figures |= {"sqnr_db": found.sqnr_db}
        if found.reference_db is not None:
            figures["sqnr_db_reference"] = found.reference_db
        return Examination((equal, kernels), plan, figures=figures)

    def _build(self, model: Path, examiner: Examiner) -> Plan:
        """The submission's engine; a graph that hides kernels from the count, in a loop for example, has been rejected."""
        try:
            return examiner.build(model, RECIPE)
        except PrecisionError:
            raise PrecisionError(
                "model.onnx computes in a smaller type than float32: this lab counts the kernels of an FP32 engine"
            ) from None

    def _kernels(self, figures: dict[str, float]) -> Outcome:
        yours, given = (int(figures[name]) for name in ("kernels", "kernels_given"))
        hint = "Which kernel in the layer table lacks a convolution or matrix product, and what kept it out of the kernel before it?"
        if "kernels_reference" not in figures:
            said = f"{yours} kernels; the given network has {given}."
            fewer = Criterion("kernels", str(yours), f"fewer than the given network's {given}", yours < given, HALF)
            return self.so_far("kernels", [fewer], hint, context=said)
        reference = int(figures["kernels_reference"])
        said = f"{yours} kernels; the given network has {given}, the reference {reference}."
        if yours <= reference - SUSPICIOUS:
            look = "Draw your layer table: does every convolution of the network have its kernel?"
            return self.outcome(
                "kernels", "inconclusive", f"{said} An instructor will look at it.", look, share=0.0, code=UNUSUAL
            )
        if yours <= reference + SPARE:
            return self.outcome("kernels", "full", said)
        said += f" Full points need at most {reference + SPARE}."
        gone = (given - yours) / (given - reference)
        share = next((share for least, share in PARTIAL if gone >= least), 0.0)
        return self.outcome("kernels", "partial" if share else "none", said, hint, share=share)

    def _run(self, model: Path, plan: Plan, examiner: Examiner) -> Equality:
        with ExitStack() as stack:
            given = stack.enter_context(examiner.baseline(self.source))
            reference = None if absent(reference_causes) else stack.enter_context(reference_engine(self, examiner, RECIPE))
            yours = stack.enter_context(examiner.engine(examiner.runnable(model, RECIPE, plan)))
            check_pace(given, yours, fresh_images(examiner, 1).images)
            return equality(given, reference, yours, examiner)

    def _equality(self, found: Equality) -> Outcome:
        where = f"on {found.family}, at the worst batch size"
        said = f"The logits have {found.sqnr_db:.0f} dB SQNR {where}"
        said += "." if found.reference_db is None else f"; the reference has {found.reference_db:.0f} dB."
        if found.tier == "full":
            return self.outcome("equality", "full", said)
        said += f" Full points need at least {found.needed_db:.0f} dB, half of the points at least {PARTIAL_DB:.0f} dB."
        if found.tier == "partial":
            hint = "Nearly equal. Is a small constant missing, such as the eps of a norm, or is a variance divided by n - 1?"
            return self.outcome("equality", "partial", said, hint, share=0.5)
        hint = "Restore one part at a time to its given form, and compare the logits. After which part are they right again?"
        return self.outcome("equality", "none", said, hint)

    def _causes(self, path: Path, examiner: Examiner) -> Outcome:
        try:
            causes = lab02_causes.read(path)
        except CourseError as error:
            hint = "Write one key per guilty suspect. Its value is a list of node names of given.onnx."
            return self.outcome("causes", "none", error, hint)
        if absent(reference_causes):
            problems = lab02_causes.invalid_evidence(causes, given_layers(examiner.builder))
            named = f"{len(causes)} of {len(PARTS)} suspects are named."
            named += "".join(f" Evidence for {one}: {problem}." for one, problem in problems.items())
            name, wrong = "suspects with evidence of another part", len(problems)
            limits = [
                Criterion(name, str(wrong), "0", not wrong),
                Criterion(name, str(wrong), f"at most {MISJUDGED}", wrong <= MISJUDGED, HALF),
            ]
            return self.so_far("causes", limits, "Evidence is a node of the suspect's part.", context=named)
        judged = lab02_causes.judge(causes, costs(examiner.builder), given_layers(examiner.builder))
        if not judged.wrong:
            return self.outcome("causes", "full", f"All {len(PARTS)} suspects are judged correctly, with evidence.")
        said = f"{len(PARTS) - judged.wrong} of {len(PARTS)} suspects are judged correctly."
        if judged.missing:
            said += f" Missing, although they cost kernels: {len(judged.missing)}."
        if judged.innocent:
            said += f" Named, although they do not cost kernels: {len(judged.innocent)}."
        if not judged.few_innocent:
            said += f" Half of the points allow fewer than half of the {judged.without_cost} suspects that do not cost kernels."
        said += "".join(f" Evidence for {suspect}: {problem}." for suspect, problem in judged.evidence.items())
        hint = "Put one suspect alone back into your fast network, and count again. Evidence is its node in a kernel of the given network."
        partial = judged.wrong <= MISJUDGED and judged.few_innocent
        return self.outcome("causes", "partial" if partial else "none", said, hint, share=0.5)


@cache
def _exported(opset: int) -> bytes:
    from course_lib.labs.lab02_fusion import reference
    from course_lib.models import export_onnx

    return export_onnx(reference.rewritten(), opset=opset).SerializeToString()


def _counts(plan: Plan, examiner: Examiner) -> dict[str, float]:
    given = len(given_layers(examiner.builder).kernels)
    if absent(reference_causes):
        return {"kernels": len(plan.layers.kernels), "kernels_given": given}
    reference = reference_kernels(examiner.builder)
    if given <= reference + SPARE:
        raise ExaminerFault(f"{examiner.builder} fuses the given network by itself, so there is nothing to grade")
    return {"kernels": len(plan.layers.kernels), "kernels_given": given, "kernels_reference": reference}


lab = Fusion()
