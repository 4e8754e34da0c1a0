"""Lab 06, training for INT8: a network whose accuracy calibration loses, and training that recovers it within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from course_lib.engines import Plan
from course_lib.errors import MISSING_FILE, BuildError, CourseError, EngineError, ExaminerFault
from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.layer_precision import int8_layers
from course_lib.labs.framework.learner_answers import Unwritten
from course_lib.labs.framework.reference import ours
from course_lib.labs.framework.submission_files import missing, submitted
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab06_qat import calibrated, graph_file, graph_reader
from course_lib.labs.lab06_qat.graph_file import MODEL
from course_lib.labs.lab06_qat.judge import functions, gradients, recovery, training
from course_lib.labs.lab06_qat.judge.recovery import RECIPE, Recovered, Secret
from course_lib.labs.lab06_qat.network import WEIGHTS
from course_lib.labs.lab06_qat.sandboxed.call_qat import FILE
from course_lib.labs.lab06_qat.stored import Stored

FULL_INT8, HALF_INT8 = 0.95, 0.7  # of the weights, in layers that compute in INT8
LEAST_RIGHT = 0.2  # of the secret images, for points for INT8 kernels: calibration alone reaches 0.25, and a guess 0.1
_GRAPH_TASKS = ("recover", "kernels")
_FAILED_HINT = "Import the file in the notebook and call its functions: the same error appears there."
_NAMES_HINT = "The grader calls your functions by their names. Keep the signatures that the tasks give."
_EMPTY_HINT = "Write its body and run the cell, which writes qat.py."


class QuantizationAwareTraining(Lab):
    """The submission is `qat.py` and `model.onnx`."""

    name = "lab06_qat"
    title = "Lab 06: training for INT8"
    artifacts: ClassVar = {FILE: functions.MAX_BYTES, MODEL: graph_file.MAX_BYTES}
    process_s: ClassVar = functions.TRAINING_LIMIT_S
    sandbox: ClassVar = {"memory_bytes": 6 << 30}  # `train` may send thousands of images through the network at once
    packages: ClassVar = ("torch", "numpy")
    tasks = (
        Task("gradient", "A rounding that lets gradients pass", 3),
        Task("budget", "Training within a budget", 2),
        Task("recover", "Accuracy that calibration loses", 3),
        Task("kernels", "INT8 kernels in the engine", 2),
    )
    build_hints: ClassVar = {
        MISSING_FILE: "Task 3 writes model.onnx. Solve it, then run its last cell again.",
        "": "The message names a node, a weight or a constant. Print the inputs of that node in the notebook.",
    }

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Training with learned input scales."""
        from course_lib.labs.lab06_qat.reference import files

        files.write(folder)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Call the functions on secret arrays and train a variant; then read the graph, run its numbers and compile them."""
        figures: dict[str, float] = {}
        outcomes: list[Outcome] = []
        secret = cache(partial(Secret.drawn, examiner))  # once, and not for a task that needs none
        plan = None
        if only in (None, "gradient"):
            outcomes.append(self._gradient(folder / FILE, examiner))
        if only in (None, "budget"):
            outcomes.append(self._budget(folder / FILE, examiner, secret, figures))
        if wanted := [task for task in _GRAPH_TASKS if only in (None, task)]:
            found, plan = self._graph(folder, examiner, secret, wanted, figures)
            outcomes += found
        return Examination(tuple(outcomes), plan, figures=figures)

    def _asked(
        self, task: str, source: Path, calls: Mapping[str, Sequence[object]], examiner: Examiner
    ) -> dict[str, list[functions.Arrays | str]] | Outcome:
        """The answers of the file's functions, or the outcome if there are none."""
        if not source.is_file():
            hint = "The first cell of task 1 writes it. Run it, then check again."
            return self.outcome(task, "none", EngineError(missing(FILE), code=MISSING_FILE), hint)
        try:
            found = functions.ask(source, calls, examiner.bare_launcher or examiner.launcher)
        except EngineError as error:
            return self.outcome(task, "none", EngineError(f"{FILE}: {error}"), _FAILED_HINT)
        if lacking := [function for function in calls if function not in found]:
            return self.outcome(task, "none", f"{FILE} defines no function {lacking[0]}.", _NAMES_HINT)
        return found

    def _gradient(self, source: Path, examiner: Examiner) -> Outcome:
        examiner.begins("gradient: your rounding on secret tensors", 5)
        rng = examiner.rng()
        asked = gradients.questions(rng)
        found = self._asked("gradient", source, {"fake_quantize": gradients.in_pairs(asked, rng)}, examiner)
        if isinstance(found, Outcome):
            return found
        judged = gradients.judged(asked, found["fake_quantize"])
        return self.judged("gradient", judged.full, judged.half, judged.hint, context=judged.said)

    def _budget(self, source: Path, examiner: Examiner, secret: Callable[[], Secret], figures: dict[str, float]) -> Outcome:
        examiner.begins("budget: your training on another variant of the network", 20)
        rng = examiner.rng()
        variant = training.Variant.drawn(rng)
        asked = training.questions(variant, rng)
        found = self._asked("budget", source, asked, examiner)
        if isinstance(found, Outcome):
            return found
        (answer,) = found["train"]
        for function, answers in (("fold", found["fold"]), ("train", found["train"])):
            if any(isinstance(one, Unwritten) for one in answers):
                return self.outcome("budget", "none", f"{function} is still empty.", _EMPTY_HINT)
        if wrong := training.wrong_fold(asked["fold"], found["fold"]):
            hint = "Compare forward with your folded layers to float_model() on a few images: the logits must agree."
            return self.outcome("budget", "none", wrong, hint)
        if isinstance(answer, str):
            return self.outcome(
                "budget", "none", f"train failed: {answer}", "Call train in the notebook with the same arguments."
            )
        parts_hint = "Print the parts of each layer that train returns, with shapes and types."
        try:
            seen, layers = training.seen(answer), training.trained(answer)
        except CourseError as error:
            return self.outcome("budget", "none", error, parts_hint)
        try:
            recovered = recovery.run(layers, replace(secret(), images=variant.data(secret().images)), examiner)
        except (BuildError, EngineError) as error:
            return self.outcome("budget", "none", error, parts_hint)
        figures["budget_share"] = recovered.share
        given = {name: calibrated.fold(layer)[0] for name, layer in asked["train"][0]["layers"].items()}
        said, hint = recovery.problem(layers, recovered, given)
        context = f"{recovered} {seen:,} of {training.BUDGET:,} images were used. {said}".strip()
        return self.judged("budget", *recovered.criteria(), hint, context=context)

    def _graph(
        self, folder: Path, examiner: Examiner, secret: Callable[[], Secret], wanted: Sequence[str], figures: dict[str, float]
    ) -> tuple[Sequence[Outcome], Plan | None]:
        examiner.begins("recover: your numbers in the course's graph", 10)
        try:
            layers = graph_reader.examined(submitted(folder, MODEL).read_bytes(), launcher=examiner.launcher)
            if not any(one.quantized for one in layers.values()):
                raise BuildError(f"{MODEL}: no layer has a pair on its input and on its weight, so nothing computes in INT8")
            with TemporaryDirectory() as scratch:
                built = examiner.build_ours(recovery.written(layers, scratch), RECIPE)
        except BuildError as error:
            return self.failed_build(error, wanted), None
        try:
            found = recovery.run(layers, secret(), examiner, built)
        except (BuildError, EngineError) as error:
            hint = "Run the file in the notebook with a batch of 50: the error appears there too."
            return self.zero_outcomes(error, hint, wanted), built
        outcomes = [self._recover(layers, found, figures)] if "recover" in wanted else []
        if "kernels" in wanted:
            outcomes.append(self._kernels(built, found, examiner, figures))
        return outcomes, built

    def _recover(self, layers: Mapping[str, Stored], found: Recovered, figures: dict[str, float]) -> Outcome:
        if left := [name for name, one in layers.items() if not one.quantized]:
            said = f"{', '.join(left)} compute in float, so this is not the accuracy of an INT8 network."
            return self.outcome("recover", "none", said, "Both the input and the weight of each layer must come out of a pair.")
        figures |= {"accuracy": found.accuracy, "recovered_share": found.share}
        given = {name: weight for name, (weight, _) in calibrated.folded_layers().items()}
        said, hint = recovery.problem(layers, found, given)
        return self.judged("recover", *found.criteria(), hint, context=f"{found} {said}".strip())

    def _kernels(self, built: Plan, found: Recovered, examiner: Examiner, figures: dict[str, float]) -> Outcome:
        floating, share = _int8_share(built)
        context = f"In float: {', '.join(floating)}." if floating else ""
        if share < FULL_INT8:
            most = _attainable(examiner)
            share /= most
            context += f" With every pair, this builder computes {most:.0%} of the weights in INT8." if most < 1 else ""
        figures["int8_weights"] = share
        full, half = (
            [
                Criterion(
                    "share of the weights in INT8 layers", f"{share:.2f}", f"at least {least:g}", share >= least, needed_for
                ),
                Criterion(
                    "share of the secret images that are right",
                    f"{found.accuracy:.2f}",
                    f"at least {LEAST_RIGHT:g}",
                    found.accuracy >= LEAST_RIGHT,
                    needed_for,
                ),
            ]
            for least, needed_for in ((FULL_INT8, ALL), (HALF_INT8, HALF))
        )
        hint = "A layer becomes INT8 when its input and its weight both come out of a pair. Which of the two is missing here?"
        if found.accuracy < LEAST_RIGHT:
            hint = (
                "Are the codes and scales in the file those of your network? Run the file on the test images in the notebook."
            )
        return self.judged("kernels", full, half, hint, context=context)


def _int8_share(built: Plan) -> tuple[list[str], float]:
    """The layers that compute in float, and the share of the weights in the others."""
    integer, floating = int8_layers(built.layers)
    if set(WEIGHTS) - {*integer, *floating}:
        raise ExaminerFault("the builder's layer table does not show every layer of the lab's graph")
    return floating, sum(WEIGHTS[name] for name in WEIGHTS if name in integer) / sum(WEIGHTS.values())


def _attainable(examiner: Examiner) -> float:
    """The share with every pair in place. A builder need not have INT8 kernels for each kind of layer, such as depthwise ones."""
    with ours(), TemporaryDirectory() as scratch:
        _, share = _int8_share(examiner.build_ours(recovery.written(calibrated.calibration(), scratch), RECIPE))
    if not share:
        raise ExaminerFault("the builder's layer table shows no INT8 layer in the calibrated network's engine")
    return share


lab = QuantizationAwareTraining()
