"""Lab 13, generate: from a decoder that computes every byte again to one with a cache that is written in place."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from course_lib.benchmark import Comparison
from course_lib.errors import MISSING_FILE, PRECISION, PROFILE, TWO_READINGS, BuildError, EngineError, RecipeError
from course_lib.labs.framework import one_graph
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, together
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.reference import absent
from course_lib.labs.framework.submission_files import submitted, submitted_recipe
from course_lib.labs.framework.task import UNUSUAL, Outcome, Task
from course_lib.labs.lab13_generation import calls, graph_form, kernels, network
from course_lib.labs.lab13_generation.graph_form import GraphForm
from course_lib.labs.lab13_generation.half import halved
from course_lib.labs.lab13_generation.judge import answers, loop, speed, truth
from course_lib.labs.lab13_generation.judge.answers import Answers
from course_lib.labs.lab13_generation.judge.decoders import HostedDecoder
from course_lib.labs.lab13_generation.judge.truth import MOST_ERROR
from course_lib.labs.lab13_generation.network import BLOCKS, CACHES

MODEL, RECIPE = "decoder.onnx", "recipe.toml"
# Relative error of the logits in FP16 against FP32. Measured: 0.002 to 0.004.
MOST_HALF_ERROR = 0.05
_FAILED_HINT = "Feed your decoder in the notebook with Recorder(...).step: the same error appears there."
_SLOW_HINT = (
    "Which of your nodes read or write a whole cache in each step, although a step adds one slot? Are all floats float32?"
)
_GRAPH_TASKS = ("answers", "requests", "fused", "speed")


@dataclass(frozen=True)
class Graph:
    """A submission's graph with its constants folded, as builder and runner read it."""

    path: Path
    form: GraphForm

    @cached_property
    def data(self) -> bytes:
        """The serialized model, float32."""
        return self.path.read_bytes()


class Generation(Lab):
    """The submission is `decoder.onnx`, `calls.json` and `recipe.toml`."""

    name = "lab13_generation"
    title = "Lab 13: generate"
    artifacts: ClassVar = {MODEL: 16 << 20, calls.FILE: calls.MAX_BYTES, RECIPE: 64 << 10}
    tasks = (
        Task("answers", "The reference's tokens, with a cache", 3),
        Task("loop", "A host that serves requests", 1),
        Task("requests", "Requests that do not see each other", 2),
        Task("fused", "Fused attention, and a cache in place", 2),
        Task("speed", "The cost of a token", 2),
    )
    timed_tasks = ("speed",)
    build_hints: ClassVar = {
        MISSING_FILE: "Task 1 writes decoder.onnx, and task 4 writes recipe.toml. Solve them, then run their cells again.",
        PRECISION: "The grader turns your float32 graph into FP16 before it compiles: the recipe says fp16.",
        TWO_READINGS: "Which line of your code made this node? For the numbers 0, 1, 2, ... of the new tokens, use `graph.steps`.",
        PROFILE: "Two profiles for `tokens`: one for prompts of any length, and one whose min, opt and max are a single token.",
        "": "The message names a constant, node, input or output of your graph. A name such as `__add123` is the compiler's: look at "
        "the names after it. GraphWriter.write checks the form of the graph, and not whether its numbers fit into FP16.",
    }

    def write_given(self, folder: str | Path = ".") -> None:
        """Write ``recomputing.onnx``, the decoder from which the notebook starts."""
        Path(folder, "recomputing.onnx").write_bytes(network.recomputing())

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """`TensorScatter` into a cache of fixed length, the operator Attention, and a profile for each use."""
        from course_lib.labs.lab13_generation import reference

        (folder / MODEL).write_bytes(reference.serialized())
        calls.write(reference.replies(), folder / calls.FILE)
        reference.RECIPE.save(folder / RECIPE)

    def speed_tier(self, latencies: Mapping[str, np.ndarray]) -> str | None:
        """See `Lab.speed_tier`."""
        return speed.tier(*speed.criteria(latencies))[0]

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Check the host's calls; then feed the decoder secret prompts, compile it, and measure what a token costs."""
        wanted = [task for task in _GRAPH_TASKS if only in (None, task)]
        host = () if wanted and only else (self._loop(folder / calls.FILE, examiner),)
        if not wanted:
            return Examination(host)
        with tempfile.TemporaryDirectory() as scratch:
            found = self._graph(folder, Path(scratch), examiner, wanted)
        order = [task.id for task in self.tasks]
        return replace(found, outcomes=tuple(sorted((*found.outcomes, *host), key=lambda one: order.index(one.task.id))))

    def _loop(self, file: Path, examiner: Examiner) -> Outcome:
        examiner.begins("loop: the calls of your host", 2)
        try:
            mistakes = loop.judged(calls.read(file))
        except EngineError as error:
            return self.outcome("loop", "none", error, "The cell of task 2 writes the file: run it, then check again.")
        if not mistakes:
            said = f"All {len(calls.SERVICE)} requests are answered with as few calls as possible."
            return self.outcome("loop", "full", said)
        first = next((one for one in mistakes if not one.wasteful), mistakes[0])
        more = len(mistakes) - 1
        others = f" And {more} more request{'s' if more > 1 else ''}." if more else ""
        return self.outcome("loop", "partial" if first.wasteful else "none", f"{first.message}.{others}", first.hint, share=0.5)

    def _graph(self, folder: Path, scratch: Path, examiner: Examiner, wanted: list[str]) -> Examination:
        try:
            fixed = one_graph.fixed(_checked(folder, examiner), scratch, examiner)
            graph = Graph(fixed, graph_form.examined(fixed.read_bytes(), launcher=examiner.launcher))
        except BuildError as error:
            return Examination(self.failed_build(error, wanted))
        try:
            return self._answered(folder, graph, examiner, wanted)
        except EngineError as error:
            return Examination(self.zero_outcomes(error, _FAILED_HINT, wanted))

    def _answered(self, folder: Path, graph: Graph, examiner: Examiner, wanted: list[str]) -> Examination:
        rng = examiner.rng()
        examiner.begins("answers: secret prompts through your decoder", 5)
        with HostedDecoder.start(graph.data, examiner) as decoder:
            found = answers.asked_answers(decoder, rng)
            outcomes = [self._answers(found)] if "answers" in wanted else []
            if not found.right:
                if rest := [task for task in wanted if task != "answers"]:
                    said = "A decoder with wrong answers is not examined further."
                    outcomes += self.zero_outcomes(said, "Solve task 1 first.", rest)
                return Examination(tuple(outcomes), figures=_figures(found))
            if "requests" in wanted:
                outcomes.append(self._unless_it_fails("requests", lambda: self._requests(decoder, rng)))
        if "fused" in wanted:
            outcomes.append(self._fused(folder, graph, examiner))
        comparisons: list[Comparison] = []
        if "speed" in wanted:
            examiner.begins("speed: recomputing, the reference and your decoder, interleaved", examiner.measure_s)
            outcomes.append(self._unless_it_fails("speed", lambda: self._speed(graph, examiner, comparisons)))
        return Examination(tuple(outcomes), None, next(iter(comparisons), None), _figures(found))

    def _unless_it_fails(self, task: str, examine: Callable[[], Outcome]) -> Outcome:
        """The outcome of a task. A decoder that fails in it keeps what it earned before."""
        try:
            return examine()
        except EngineError as error:
            return self.outcome(task, "none", error, _FAILED_HINT)

    def _answers(self, found: Answers) -> Outcome:
        full, half = found.criteria()
        hint = (
            "Compare with the recomputing decoder: a prompt of one token, of two, and one token after it. Where does it begin?"
        )
        if not found.wrong and found.error <= MOST_ERROR:
            hint = "Which tensors do your logits come from? Each token must find the keys and values of the earlier ones in the cache."
        context = found.place
        if found.fault:
            context, hint = f"{context} The logits are those of a decoder {found.fault.message}.".strip(), found.fault.hint
        return self.judged("answers", full, half, hint, context=context)

    def _requests(self, decoder: HostedDecoder, rng: np.random.Generator) -> Outcome:
        served = answers.served(decoder, rng)
        full, half = served.criteria()
        return self.judged("requests", full, half, served.hint)

    def _fused(self, folder: Path, graph: Graph, examiner: Examiner) -> Outcome:
        examiner.begins("fused: your graph in FP16, compiled for prompts and for single tokens", 10)
        try:
            recipe = submitted_recipe(folder, RECIPE)
            found = kernels.plans(graph.data, graph.form, recipe, examiner)
            with HostedDecoder.start(halved(graph.data, launcher=examiner.launcher), examiner) as decoder:
                asked = truth.request(truth.secret_prompt(examiner.rng(), 40), 8)
                off = truth.error(asked.logits, answers.fresh(decoder, asked))
        except (RecipeError, BuildError) as error:
            return self.failed_build(error, ["fused"])[0]
        except EngineError as error:
            hint = "Which constant or product of your graph leaves the range of FP16, which ends at 65 504?"
            return self.outcome("fused", "none", f"in FP16, {error}", hint)
        half = [
            _whole("attentions in one kernel, for prompts", found.prompt.whole),
            _whole("attentions in one kernel, for a single token", found.token.whole),
            Criterion(
                "relative error of the logits in FP16",
                f"{off:.1g}",
                f"at most {MOST_HALF_ERROR:g}",
                off <= MOST_HALF_ERROR,
                HALF,
            ),
        ]
        in_place, large = graph.form.in_place, found.token.large
        full = [
            *(replace(one, needed_for=ALL) for one in half),
            Criterion("caches written in place", f"{in_place} of {len(CACHES)}", f"{len(CACHES)}", in_place == len(CACHES)),
        ]
        context = f"Other caches are written by {', '.join(graph.form.others)}." if graph.form.others else ""
        hint = _hint_for_kernels(half, in_place)
        if _reference_absent():
            written = f"A single token's kernels write {large} tensors of a cache's size."
            return self.so_far("fused", together(full, half), hint, context=f"{context} {written}".strip())
        most = kernels.reference_plans().token.large
        full.append(
            Criterion(
                "tensors of a cache's size that a single token's kernels write", str(large), f"at most {most}", large <= most
            )
        )
        return self.judged("fused", full, half, hint, context=context)

    def _speed(self, graph: Graph, examiner: Examiner, comparisons: list[Comparison]) -> Outcome:
        """The outcome; the measured times are appended to `comparisons`."""
        from course_lib.labs.lab13_generation import reference

        with ExitStack() as stack:
            theirs = None
            if not _reference_absent():
                theirs = stack.enter_context(HostedDecoder.start(reference.serialized(), examiner, ours=True))
            naive = stack.enter_context(HostedDecoder.start(network.recomputing(), examiner, ours=True))
            yours = stack.enter_context(HostedDecoder.start(graph.data, examiner))
            comparisons.append(speed.measured(yours, theirs, naive, examiner))
        full, half = speed.criteria(comparisons[0].latencies())
        if _reference_absent():
            return self.so_far("speed", together(full, half), _SLOW_HINT)
        if full[3:]:
            cause = "far faster than any known graph. An instructor will look at it"
            return replace(self.judged("speed", full, half, _SLOW_HINT, cause=cause), code=UNUSUAL)
        return self.judged("speed", full, half, _SLOW_HINT)


def _reference_absent() -> bool:
    from course_lib.labs.lab13_generation import reference

    return absent(reference)


def _checked(folder: Path, examiner: Examiner) -> Path:
    """The submission's graph, whose inputs and outputs are the lab's: a message about them comes before one about its nodes."""
    model = submitted(folder, MODEL)
    graph_form.examined(model.read_bytes(), launcher=examiner.launcher)
    return model


def _figures(found: Answers) -> dict[str, float]:
    return {"tokens_right": 1 - found.wrong / found.total, "logits_error": min(found.error, 1e6)}


def _whole(name: str, found: int) -> Criterion:
    return Criterion(name, f"{found} of {BLOCKS}", f"{BLOCKS}", found == BLOCKS, HALF)


def _hint_for_kernels(half: list[Criterion], in_place: int) -> str:
    if not all(one.met for one in half[:2]):
        return "TensorRT recognizes the operator Attention, or product, mask, softmax, product. What stands between yours?"
    if in_place < len(CACHES):
        return "Which operator of operator set 24 is made for this? It takes the cache, the new entries and `position`, and nothing else."
    return (
        "Which kernels write such a tensor? Print them with `seen`. Keys that are repeated for each query head are one cause, and an "
        "operator between the cache and Attention is another."
    )


lab = Generation()
