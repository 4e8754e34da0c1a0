"""Lab 02, fusion: a network that is right and refuses to fuse, written again as the same function in half the kernels."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar

from course_lib.engines import ModelSource, Plan
from course_lib.errors import BuildError, CourseError, EngineError, ExaminerFault, PrecisionError
from course_lib.labs import lab02_causes
from course_lib.labs.base import Bench, Examination, Lab, Outcome, Task
from course_lib.labs.handed_in import missing
from course_lib.labs.lab02_causes import PARTS
from course_lib.labs.lab02_counts import OPSET, RECIPE, costs, given_layers, reference_kernels
from course_lib.labs.lab02_equality import PARTIAL_DB, Equality, equality
from course_lib.labs.operators import CONTROL_FLOW, operators
from course_lib.labs.reference import reference_engine

SPARE = 1  # kernels more than the reference's that cost nothing
# Shares of the points by the share of the needless kernels that are gone, those of the given network that the reference does without.
PARTIAL = ((2 / 3, 0.6), (1 / 3, 0.3))
SUSPICIOUS = 4  # that many kernels fewer than the reference's and an instructor has to look: one fewer is the best known
MISJUDGED = 2  # suspects that may be judged wrongly for half of the points

_OF_THE_MODEL = ("equality", "kernels")
_EVIDENCE = {  # the reference's causes.json
    "activation": ["/block1/act/Where"],
    "branches": ["/block2/conv1/second/Conv"],
    "concat": ["/block3/conv1/right/Conv"],
    "head": ["/head/head.1/MatMul"],
    "layout": ["/block1/norm1/Transpose"],
    "residual": ["/block1/join/ReduceSum"],
}


class Fusion(Lab):
    """Hand in `model.onnx` and `causes.json`. The engine is built with `RECIPE`, which is the same for everybody."""

    name = "lab02_fusion"
    title = "Lab 02: fusion"
    artefacts: ClassVar = {"model.onnx": 4 << 20, "causes.json": lab02_causes.MAX_BYTES}
    tasks = (
        Task("equality", "The same function", 3),
        Task("kernels", "Half the kernels", 5),
        Task("causes", "What cost them", 2),
    )
    source = ModelSource("course_lib.labs.lab02_network:slow_classifier")
    recipe = RECIPE

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Every suspect rewritten, the innocent too, and the guilty named."""
        (folder / "model.onnx").write_bytes(_exported(opset or OPSET))
        (folder / "causes.json").write_text(json.dumps(_EVIDENCE, indent=2))

    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Count the kernels, compare the answers, check the evidence."""
        causes = () if only in ("equality", "kernels") else (self._causes(folder / "causes.json", bench),)
        if only == "causes":
            return Examination(causes)
        network = self._network(folder / "model.onnx", bench)
        return replace(network, outcomes=(*network.outcomes, *causes))

    def _network(self, model: Path, bench: Bench) -> Examination:
        """Kernels and answers stand and fall together: neither the given network nor a fast other function earns anything."""
        try:
            plan = self._build(model, bench)
        except BuildError as error:
            return Examination(self.nothing(str(error), _hint_for_build(error), _OF_THE_MODEL))
        figures = _counts(plan, bench)
        kernels = self._kernels(figures)
        if kernels.tier == "none":
            message = f"Nothing to compare yet, this is the given network or close to it. {kernels.message}"
            equal = self.outcome("equality", "none", message, kernels.hint)
            return Examination((equal, kernels), plan, figures=figures)
        try:
            found = self._run(model, plan, bench)
        except (EngineError, BuildError) as error:
            hint = "Load your engine in the notebook and run batches of 1, 3, 8 and 32: the error appears there too."
            return Examination(self.nothing(str(error), hint, _OF_THE_MODEL), plan, figures=figures)
        equal = self._equality(found)
        if equal.tier == "none":
            kernels = self.outcome("kernels", "none", "The kernels of another function do not count.", equal.hint)
        figures |= {"sqnr_db": found.sqnr_db, "sqnr_db_reference": found.reference_db}
        return Examination((equal, kernels), plan, figures=figures)

    def _build(self, model: Path, bench: Bench) -> Plan:
        """The hand-in's engine, after a look for operators that would hide kernels from the count."""
        if not model.is_file():
            raise BuildError(missing("model.onnx"))
        if hidden := CONTROL_FLOW & operators(model.read_bytes(), launcher=bench.launcher):
            raise BuildError(
                f"model.onnx holds {', '.join(sorted(hidden))}: the layer table shows a loop's kernels once, however often they run"
            )
        try:
            return bench.build(model, RECIPE)
        except PrecisionError:
            raise PrecisionError(
                "model.onnx computes in a smaller type than float32: the kernels of FP32 are counted here"
            ) from None

    def _kernels(self, figures: dict[str, float]) -> Outcome:
        yours, given, reference = (int(figures[name]) for name in ("kernels", "kernels_given", "kernels_reference"))
        said = f"{yours} kernels; the given network has {given}, the reference {reference}."
        if yours <= reference - SUSPICIOUS:
            hint = "Draw your layer table: does every convolution of the network have its kernel?"
            return self.outcome("kernels", "inconclusive", f"{said} An instructor will look at it.", hint, share=0.0)
        if yours <= reference + SPARE:
            return self.outcome("kernels", "full", said)
        said += f" Full points need {reference + SPARE}."
        hint = "Draw the layer table. Which kernel holds no convolution and no matrix product, and what kept it out of the one before?"
        gone = (given - yours) / (given - reference)
        share = next((share for least, share in PARTIAL if gone >= least), 0.0)
        return self.outcome("kernels", "partial" if share else "none", said, hint, share=share)

    def _run(self, model: Path, plan: Plan, bench: Bench) -> Equality:
        with ExitStack() as stack:
            given = stack.enter_context(bench.baseline(self.source))
            reference = stack.enter_context(reference_engine(self, bench, RECIPE))
            yours = stack.enter_context(bench.engine(bench.runnable(model, RECIPE, plan)))
            return equality(given, reference, yours, bench)

    def _equality(self, found: Equality) -> Outcome:
        said = f"Logits at {found.sqnr_db:.0f} dB on {found.family}, the reference at {found.reference_db:.0f}."
        if found.tier == "full":
            return self.outcome("equality", "full", said)
        said += f" Full points need {found.needed_db:.0f} dB, half {PARTIAL_DB:.0f}."
        if found.tier == "partial":
            hint = "Nearly the same. Did a small constant get lost, the eps of a norm, or is a variance divided by n - 1?"
            return self.outcome("equality", "partial", said, hint, share=0.5)
        hint = "Put one part at a time back as it was given and compare logits: after which one are they right again?"
        return self.outcome("equality", "none", said, hint)

    def _causes(self, path: Path, bench: Bench) -> Outcome:
        try:
            causes = lab02_causes.read(path)
        except CourseError as error:
            hint = "One key a guilty suspect, and under it a list of node names of given.onnx."
            return self.outcome("causes", "none", str(error), hint)
        judged = lab02_causes.judge(causes, costs(bench.builder), given_layers(bench.builder))
        if not judged.wrong:
            return self.outcome("causes", "full", f"All {len(PARTS)} suspects judged right, with evidence.")
        said = f"{len(PARTS) - judged.wrong} of {len(PARTS)} suspects judged right."
        if judged.missing:
            said += f" Not named, and yet they cost kernels: {len(judged.missing)}."
        if judged.innocent:
            said += f" Named, and yet they cost none: {len(judged.innocent)}."
        said += "".join(f" Evidence against {suspect}: {problem}." for suspect, problem in judged.evidence.items())
        hint = "Put one suspect alone back into your fast network and count again. Evidence are its nodes inside the given one's kernels."
        return self.outcome("causes", "partial" if judged.wrong <= MISJUDGED else "none", said, hint, share=0.5)


@cache
def _exported(opset: int) -> bytes:
    from course_lib.labs.lab02_reference import rewritten
    from course_lib.models import export_onnx

    return export_onnx(rewritten(), opset=opset).SerializeToString()


def _counts(plan: Plan, bench: Bench) -> dict[str, float]:
    given, reference = len(given_layers(bench.builder).kernels), reference_kernels(bench.builder)
    if given <= reference + SPARE:
        raise ExaminerFault(f"{bench.builder} fuses the given network by itself: there is nothing to grade")
    return {"kernels": len(plan.layers.kernels), "kernels_given": given, "kernels_reference": reference}


def _hint_for_build(error: CourseError) -> str:
    if isinstance(error, PrecisionError):
        return "Keep every tensor float32. Smaller types are the subject of lab 04, and they fuse nothing that refuses to fuse."
    if "is missing" in str(error):
        return "Task 2 writes model.onnx: solve it first, then run its cell again."
    if "kernels once" in str(error):
        return "Unroll it: every kernel that runs has to stand in the table."
    if "always" in str(error):
        return "The batch has to stay dynamic, 1 to 32: export_onnx keeps it so, and a reshape takes -1 for it."
    return "Build it in the notebook with course_lib.engines.build and lab.recipe: the same error appears there."


lab = Fusion()
