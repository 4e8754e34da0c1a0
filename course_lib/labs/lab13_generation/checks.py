"""What is looked at in each task of lab 13, and the steps that the checks share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines import LayerTable
from course_lib.errors import PRECISION, PROFILE, BuildError, EngineError
from course_lib.exercises.exercise import Case
from course_lib.labs.framework import onnx_model, runner
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_most, holds, open_without_reference, speed_at_least
from course_lib.labs.framework.examination import TimedWorker, fault
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.submission import submitted, submitted_recipe
from course_lib.labs.lab13_generation import given
from course_lib.labs.lab13_generation.given import BLOCKS, CACHE_SHAPE, CACHES, LENGTH, MOST_NEW, WINDOW, error, errors
from course_lib.labs.lab13_generation.sandboxed import decoder, graph, host
from course_lib.labs.lab13_generation.sandboxed.decoder import feed, fill
from course_lib.recipe import Profile, Recipe

MODEL, HOST, RECIPE = "decoder.onnx", "host.py", "recipe.toml"
COUNT = 16  # single tokens after each prompt
# Largest relative error of the logits. Measured: ONNX Runtime against PyTorch 1e-6 to 5e-6; the smallest of the named mistakes 0.001.
MOST_ERROR = 1e-4
MOST_HALF_ERROR = 0.05  # in FP16; measured: 0.002 to 0.004
GARBAGE = 100.0  # size of the numbers in slots that hold nothing; keys and values of the network are below 10
ITS_TARGET = "sm89"  # TensorRT 8.6 has neither the operators nor a table of kernels, and 10 has the cache from 10.15 on
SPANS = {"early": (4, 40), "late": (300, 400)}  # positions from which tokens are timed
STEPS = 16  # tokens that are timed together, because one takes a fraction of a millisecond
NAIVE = "recomputing"
_COMPARE = "Compare with the recomputing decoder: one token, a prompt, a token after it. Where does it begin?"


class GenerationWork(Work):
    """A submission: `decoder.onnx`, `host.py` and `recipe.toml`."""

    @cached_property
    def secret(self) -> np.random.Generator:
        """Draws what the submission does not know."""
        return self.rng()

    @step
    def model(self) -> bytes:
        """The graph, as one plain graph."""
        self.examiner.begins("reading decoder.onnx", 3)
        data = submitted(self.folder, MODEL).read_bytes()
        return onnx_model.transformed(graph.checked, data, MODEL, launcher=self.examiner.launcher)

    @step
    def half(self) -> tuple[list[str], bytes]:
        """The operator that writes each of `CACHES`, and the graph in FP16."""
        launcher = self.examiner.launcher
        answer = onnx_model.transformed(graph.halved, self.model, MODEL, launcher=launcher)
        writers, _, half = answer.partition(b"\n")
        return runner.read_hostile(writers, lambda names: [str(name)[:60] for name in names], "not a graph in FP16"), half

    def hosted(self, model: bytes, *, ours: bool = False) -> TimedWorker:
        """A decoder in its own process, which ends with the examination."""
        return self.enter_context(decoder.hosted(model, self.examiner, ours=ours))

    @step
    def decoder(self) -> TimedWorker:
        """The submission's."""
        return self.hosted(self.model)

    @step
    def answered(self) -> list[Criterion]:
        """Secret conversations of secret lengths, each on a cleared cache, against PyTorch: in the first lap of the ring, and later."""
        self.examiner.begins("answers: secret conversations through your decoder", 5)
        lengths = ((1, 2), (2, 12), (2, 12), (12, WINDOW - COUNT), (WINDOW + 16, LENGTH - COUNT))
        first = self._compared(f"up to position {LENGTH - 1}", HALF, lengths, LENGTH - 60)
        if not first.met:
            return [first]
        where = f"from position {LENGTH} on, where slots are used again"
        try:
            return [first, self._compared(where, ALL, ((LENGTH - 8, LENGTH), *[(LENGTH + 8, 700)] * 2), LENGTH + 40)]
        except EngineError as error:
            slot = f"Which slot does the token at position {LENGTH} belong in?"
            return [first, self._scores(where, math.inf, ALL, f"It fails beyond position {LENGTH - 1}: {error}.", slot)]

    def _compared(self, where: str, needed_for: str, lengths: Iterable[tuple[int, int]], longest: int) -> Criterion:
        """After prompts of these lengths. The first wrong scores are named, and the mistake that gives them in prompts up to `longest`."""
        worst = 0.0
        for length in drawn(self.secret, *lengths):
            tokens, sizes = conversation(self.secret, length)
            off = errors(right_scores(tokens, sizes), fresh(self.decoder, tokens, sizes))
            worst = max(worst, float(off.max()))
            if worst > MOST_ERROR:
                fed = sum(sizes[: int(np.argmax(off > MOST_ERROR)) + 1])
                fault, hint = self._recognized(longest)
                which = f" They are those of a decoder {fault}." if fault else ""
                first = f"The first wrong scores are those after {fed} tokens, with a prompt of {length}."
                return self._scores(where, worst, needed_for, first + which, hint or _COMPARE)
        return self._scores(where, worst, needed_for)

    def _scores(self, where: str, off: float, needed_for: str, symptom: str = "", hint: str = "") -> Criterion:
        self.figures["logits_error"] = max(self.figures.get("logits_error", 0.0), min(off, 1e6))
        name, bound = f"relative error of the scores {where}", f"at most {MOST_ERROR:g}"
        return Criterion(name, f"{off:.1g}", bound, off <= MOST_ERROR, needed_for, hint, symptom=symptom)

    def _recognized(self, longest: int) -> tuple[str, str]:
        """Words and hint of the mistake that gives this decoder's scores, "" if none is known."""
        from course_lib.labs.lab13_generation import network

        probes = [conversation(self.secret, length) for length in (9, longest)]
        with contextlib.suppress(EngineError):
            return network.recognized([(*probe, fresh(self.decoder, *probe)) for probe in probes])
        return "", ""

    @step
    def tables(self) -> dict[str, LayerTable]:
        """The layer table in FP16 for each use of `profiles`."""
        recipes = profiles(submitted_recipe(self.folder, RECIPE))
        path = self.scratch / "half.onnx"
        path.write_bytes(self.half[1])
        self.examiner.begins("fused: your graph in FP16, compiled for prompts and for single tokens", 10)
        build = self.examiner.with_rtx.build
        return {use: build(path, recipe).layers for use, recipe in recipes.items()}


def answers(work: GenerationWork) -> Iterator[Criterion]:
    """The logits of secret conversations."""
    yield from work.answered


def _solved(work: GenerationWork, part: str) -> Generator[Criterion, None, bool]:
    """Whether this part of task 1 is solved. Without it, a task is not examined further."""
    met = all(criterion.met for criterion in work.answered if part in (ALL, criterion.needed_for))
    hint = "Solve task 1 first: a decoder with other scores than the right ones is not examined further."
    yield replace(holds(f"{part} of task 1", met, HALF, hint=hint), symptom=f"The decoder does not have {part} of task 1.")
    return met


# By kind: bounds of the prompt's length, of its position and of the number of bytes, and the place of a newline, if there is one.
KINDS = (
    ((3, 20), (0, 1), (5, 12), None),
    ((10, 60), (0, 1), (30, 31), (3, 9)),
    ((5, 30), (0, 1), (1, 2), None),
    ((290, 380), (0, 1), (4, 5), None),
    ((60, 120), (200, 240), (5, 6), None),
    ((30, 90), (300, 380), (12, 13), (11, 12)),
    ((110, MOST_NEW), (30, 100), (3, 4), None),
    ((270, 330), (450, 500), (3, 4), None),
)


def requests(rng: np.random.Generator) -> list[Case]:
    """A secret request of each kind: prompt, largest number of bytes, position, and the bytes that the decoder says."""
    cases = []
    for lengths, positions, counts, stops in KINDS:
        length, position, count = drawn(rng, lengths, positions, counts)
        prompt, script = np.split(rng.integers(97, 123, length + count), [length])
        answer, mistakes = script.tolist(), {}
        if stops:
            script[(stop := int(rng.integers(*stops)))] = given.STOP
            answer, mistakes = script[: stop + 1].tolist(), {"the answer goes on after its newline": script.tolist()}
        mistakes["the answer ends one byte early"] = answer[:-1]
        arguments = (prompt.tolist(), count, position, script.tolist())
        cases.append(Case(arguments, answer, mistakes, f"{length} bytes at position {position}"))
    return cases


def fewest_calls(position: int, prompt: int, answered: int) -> int:
    """Calls that a request needs, by the numbers of its bytes."""
    edges = [position, *range(-(-position // LENGTH) * LENGTH, position + prompt, LENGTH)]
    parts = np.diff([*dict.fromkeys(edges), position + prompt])
    return int((-(-parts // MOST_NEW)).sum()) + answered - 1


def loop(work: GenerationWork) -> Iterator[Criterion]:
    """The answers of a learner's host, and the number of its calls."""
    cases = requests(work.rng())
    work.examiner.begins("loop: requests to your host", 1)
    asked = {"serve": [case.arguments for case in cases]}
    found = runner.call(submitted(work.folder, HOST), asked, work.examiner, program=host)["serve"]
    answers = [one if isinstance(one, runner.Failed) else one["answer"] for one in found]
    hint = "Print position, number of tokens and answer of each call for the first request that is wrong."
    right = runner.case_criterion("requests that are answered", cases, answers, HALF, hint=hint)
    yield right
    if right.met:
        fewest = []
        for case in cases:
            prompt, _, position, _ = case.arguments
            fewest.append(replace(case, expected=fewest_calls(position, len(prompt), len(case.expected)), mistakes={}))
        name = "requests answered with the fewest calls"
        hint = "Which calls have scores that nothing reads, and which could be one call?"
        yield runner.case_criterion(name, fewest, [one["calls"] for one in found], hint=hint)


def kept_apart(work: GenerationWork) -> Iterator[Criterion]:
    """Four scenes on one set of buffers."""
    if not (yield from _solved(work, ALL)):
        return
    yours, rng = work.decoder, work.secret
    work.examiner.begins("requests: four scenes on the same buffers", 3)
    fill(yours, 0.0, rng)
    feed(yours, *conversation(rng, int(rng.integers(300, 500))))
    again = conversation(rng, int(rng.integers(10, 60)))
    mask = "Which slots does the mask show to the first token of a conversation, and how does it know?"
    yield _scene("a second conversation in the same buffers", wrong_scores(yours, *again), HALF, mask)
    place = "A call writes its new tokens' slots. Which node of your graph changes others, and why?"
    yield _scene("a call that changes only its own slots", changed_slots(yours, rng), HALF, place)
    fill(yours, GARBAGE, rng)
    yield _scene("a conversation over old entries", wrong_scores(yours, *again), ALL, mask)
    back = "Do positions, mask and place of writing begin at `position` in each call?"
    yield _scene("a prompt in parts, and a step back", in_parts(yours, rng), ALL, back)


def fused(work: GenerationWork) -> Iterator[Criterion]:
    """What the compiler makes of the graph in FP16."""
    if not (yield from _solved(work, HALF)):
        return
    split = "TensorRT recognizes the operator Attention, or product, mask, softmax, product. What is between yours?"
    for use, table in work.tables.items():
        by_name = [kernel.kind == "kgen" and kernel.name.startswith(("_gemm_mha", "_gemv_mha")) for kernel in table.kernels]
        whole = min(BLOCKS, sum(by_name))  # a builder may need one more for a kernel in two parts
        name, found = f"attentions in one kernel, for {use}", f"{whole} of {BLOCKS}"
        yield Criterion(name, found, f"{BLOCKS} of {BLOCKS}", whole == BLOCKS, HALF, split)
    writers, half = work.half
    tokens, sizes = conversation(work.secret, 40)
    off = error(right_scores(tokens, sizes), fresh(work.hosted(half), tokens, sizes))
    range_of_half = "Which constant or product of your graph leaves the range of FP16, which ends at 65,504?"
    yield at_most("relative error of the scores in FP16", off, MOST_HALF_ERROR, HALF, hint=range_of_half)
    others = sorted({writer for writer in writers if writer != graph.IN_PLACE})
    by_scatter = "Which operator of operator set 24 takes the cache, the new entries and the first slot, and nothing else?"
    found = f"{writers.count(graph.IN_PLACE)} of {len(CACHES)}" + (f" (others by {', '.join(others)})" if others else "")
    yield Criterion("caches written in place", found, f"{len(CACHES)} of {len(CACHES)}", not others, ALL, by_scatter)
    copies = (
        "Which kernels write such a tensor? Print them with `seen`. Keys that are repeated for each query head are one cause."
    )
    written = (tensor for kernel in work.tables["a single token"].kernels for tensor in kernel.outputs)
    large = sum(math.prod(map(abs, tensor.shape)) >= math.prod(CACHE_SHAPE) for tensor in written)
    yield at_most("tensors of a cache's size that a single token's kernels write", large, len(CACHES), hint=copies)


def profiles(recipe: Recipe) -> dict[str, Recipe]:
    """By use, the recipe with one of its two profiles alone, for the device whose tables are read."""
    if recipe.precision != "fp16":
        raise BuildError(
            f'recipe.toml says precision = "{recipe.precision}"; the grader compiles your graph in "fp16"', code=PRECISION
        )
    if len(recipe.profiles) != 2:
        raise BuildError(f"recipe.toml has {len(recipe.profiles)} profiles, expected two: prompts, and one token", code=PROFILE)
    if any([*profile.root] != ["tokens"] or len(profile["tokens"].max) != 2 for profile in recipe.profiles):
        raise BuildError("each profile gives min, opt and max of `tokens` (1, new), and of no other input", code=PROFILE)
    single, prompts = sorted(recipe.profiles, key=lambda profile: profile["tokens"].max[1])
    if single["tokens"].max != (1, 1):
        raise BuildError("one profile must be for a single token, with max = (1, 1)", code=PROFILE)
    sizes = prompts["tokens"]
    if not all(sizes.contains((1, size)) for size in (2, MOST_NEW)) or sizes.max[1] > LENGTH:
        raise BuildError(
            f"the profile for prompts goes from {sizes.min[1]} to {sizes.max[1]} tokens: the service's calls have 2 to {MOST_NEW}",
            code=PROFILE,
        )
    uses = {"prompts": prompts, "a single token": single}
    return {use: recipe.model_copy(update={"profiles": (one,), "targets": (ITS_TARGET,)}) for use, one in uses.items()}


def speed(work: GenerationWork) -> Iterator[Criterion]:
    """One race of recomputing, the reference and the submission."""
    from course_lib.labs.lab13_generation import reference

    if not (yield from _solved(work, ALL)):
        return
    work.examiner.begins("speed: recomputing, the reference and your decoder, interleaved", work.examiner.measure_s)
    theirs = None if absent(reference) else work.hosted(reference.serialized(), ours=True)
    work.comparison = measured(work, work.decoder, theirs)
    yield from race(work.comparison.latencies())


def race(latencies: Mapping[str, np.ndarray]) -> Iterator[Criterion]:
    """What follows from the times of a token; undecided while an interval contains a bound."""
    same = "Does your graph do more work late in a conversation than early? The ring has as many slots in each call."
    copies = "Which of your nodes read or write a whole cache in each call, although a call adds one slot?"
    rows = (
        ("speed at late positions over early ones", "yours, early", 0.7, 0.4, same),
        (f"tokens per second over {NAIVE}", NAIVE, 8.0, 3.0, copies),
        ("tokens per second over the reference", "reference", 0.8, 0.4, copies),
    )
    for name, other, whole, half, hint in rows:
        if other not in latencies:
            yield open_without_reference(name, "not measured")
            continue
        over = speedup(latencies[other], latencies["yours"], seed=0)
        yield speed_at_least(name, over, half, HALF, hint=hint)
        yield speed_at_least(name, over, whole, hint=hint)


def measured(work: GenerationWork, yours: TimedWorker, reference: TimedWorker | None) -> Comparison:
    """Measure until the tier is decided or the time is over. Each timed answer is compared with the right one."""
    rng = work.secret
    texts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {when: [] for when in SPANS}
    for when, span in SPANS.items():
        for tokens in (text(rng, length + STEPS) for length in drawn(rng, *[span] * 8)):
            texts[when].append((tokens, right_scores(tokens, [len(tokens) - STEPS, *[1] * STEPS])[1:]))

    def token_ms(cached: TimedWorker, when: str, feeds: Mapping[str, np.ndarray]) -> float:
        tokens, right = texts[when][int(feeds[when])]
        prompt, new = np.split(tokens, [-STEPS])
        feed(cached, prompt, calls(len(prompt)))
        spent_ms, found = feed(cached, new, [1] * STEPS, len(prompt))
        if wrong := difference(right, found):
            raise fault(EngineError(f"timed tokens at {when} positions: {wrong}"), ours=cached.ours)
        return spent_ms / STEPS

    naive = recomputing(work)
    subjects: dict[str, Any] = {
        NAIVE: SimpleNamespace(
            time_ms=lambda feeds: naive.time_ms({"tokens": texts["late"][int(feeds["late"])][0][None, : 1 - STEPS]})
        ),
        "yours, early": SimpleNamespace(time_ms=partial(token_ms, yours, "early")),
        "yours": SimpleNamespace(time_ms=partial(token_ms, yours, "late")),
    }
    if reference:
        subjects["reference"] = SimpleNamespace(time_ms=partial(token_ms, reference, "late"))
    return work.examiner.measured(
        lambda: compare(
            subjects,
            lambda: {when: rng.integers(len(several), size=()) for when, several in texts.items()},
            baseline=NAIVE,
            time_limit_s=work.examiner.measure_s,
            min_rounds=40,
            warmup=3,
            settled=lambda latencies: all(one.met is not None or one.code for one in race(latencies)),
        )
    )


def recomputing(work: Work) -> TimedWorker:
    """ONNX Runtime with the decoder from which the notebook starts."""
    from course_lib.labs.lab13_generation import network

    path = work.scratch / "recomputing.onnx"
    path.write_bytes(network.recomputing())
    sizes = Profile(tokens={"min": (1, 1), "opt": (1, LENGTH), "max": (1, given.POSITIONS)})
    examiner = replace(work.examiner.for_ours, runner="onnxruntime")
    return work.enter_context(examiner.reference(examiner.runnable(path, Recipe(profiles=(sizes,)))))


def drawn(rng: np.random.Generator, *bounds: tuple[int, int]) -> list[int]:
    """A number for each pair of bounds."""
    return [int(rng.integers(*pair)) for pair in bounds]


def text(rng: np.random.Generator, length: int) -> np.ndarray:
    """Held-out text from a secret place."""
    from course_lib.models import course_text

    whole = np.frombuffer(course_text("test"), np.uint8).astype(np.int64)
    begin = int(rng.integers(len(whole) - length))
    return whole[begin : begin + length]


def conversation(rng: np.random.Generator, prompt: int) -> tuple[np.ndarray, list[int]]:
    """Tokens, and the sizes of the calls that feed them: a prompt, and `COUNT` single tokens."""
    return text(rng, prompt + COUNT), [*calls(prompt), *[1] * COUNT]


def calls(new: int) -> list[int]:
    """Sizes of the calls for so many tokens, from the first slot on."""
    return [min(MOST_NEW, new - begin) for begin in range(0, new, MOST_NEW)]


def right_scores(tokens: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The right logits after each call."""
    from course_lib.labs.lab13_generation import network

    return network.logits_after(tokens)[np.cumsum(sizes) - 1]


def fresh(yours: TimedWorker, tokens: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The logits after each call, on a cache of zeros."""
    fill(yours, 0.0, np.random.default_rng(0))
    return feed(yours, tokens, sizes)[1]


def wrong_scores(yours: TimedWorker, tokens: np.ndarray, sizes: Sequence[int]) -> str:
    """How the scores of a conversation on the cache as it is differ from the right ones; "" if they do not."""
    return difference(right_scores(tokens, sizes), feed(yours, tokens, sizes)[1])


def difference(right: np.ndarray, found: np.ndarray) -> str:
    """How scores differ from the right ones; "" if they do not."""
    off = error(right, found)
    return f"the scores have a relative error of {off:.1g}" if off > MOST_ERROR else ""


def _scene(name: str, wrong: str, needed_for: str, hint: str) -> Criterion:
    return replace(holds(name, not wrong, needed_for, hint=hint), symptom=f"In the scene {name!r}, {wrong}.")


def changed_slots(yours: TimedWorker, rng: np.random.Generator) -> str:
    """Which slots a call changes that are not its own, for one token, a few and many, in two laps of the ring."""
    for new in (1, int(rng.integers(2, 9)), MOST_NEW):
        for position in (0, LENGTH - new, LENGTH + int(rng.integers(0, LENGTH - new + 1))):
            before = fill(yours, 1.0, rng)
            feed(yours, text(rng, new), [new], position)
            after = yours.infer({})
            others = ~np.isin(np.arange(LENGTH), np.arange(position, position + new) % LENGTH)
            for name in CACHES:
                changed = (before[f"past_{name}"] != after[f"past_{name}"]).any(axis=(0, 1, 3)) & others
                if changed.any():
                    return f"a call for {new} at position {position} changes slot {int(np.argmax(changed))} of {name}"
    return ""


def in_parts(yours: TimedWorker, rng: np.random.Generator) -> str:
    """A prompt in three calls; then a few tokens are taken back, and others follow."""
    length = int(rng.integers(30, 90))
    tokens, others = text(rng, length), text(rng, 6)
    cuts = np.sort(rng.choice(np.arange(2, length - 1), 2, replace=False))
    if wrong := wrong_scores(yours, tokens, np.diff([0, *cuts, length]).tolist()):
        return wrong
    kept = length - int(rng.integers(2, 10))
    _, again = feed(yours, others, [1] * len(others), kept)
    return difference(right_scores(np.append(tokens[:kept], others), [kept, *[1] * len(others)])[1:], again)
