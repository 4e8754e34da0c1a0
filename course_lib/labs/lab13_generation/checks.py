"""What is looked at in each task of lab 13, and the steps that the checks share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines import Layer, LayerTable
from course_lib.errors import PRECISION, PROFILE, BuildError, EngineError
from course_lib.labs.framework import runner
from course_lib.labs.framework.criteria import (
    ALL,
    HALF,
    Criterion,
    all_right,
    at_most,
    equals,
    holds,
    open_without_reference,
    speed_at_least,
)
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.submission import submitted, submitted_recipe
from course_lib.labs.lab13_generation.given import (
    BLOCKS,
    CACHE_SHAPE,
    CACHES,
    HEADS,
    LENGTH,
    MOST_NEW,
    SIZE,
    STOP,
    VOCABULARY,
    WINDOW,
)
from course_lib.labs.lab13_generation.sandboxed import graph, host
from course_lib.labs.lab13_generation.sandboxed.decoder import HostedDecoder, calls
from course_lib.recipe import Recipe

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
Latencies = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Answers:
    """Errors of a decoder on secret conversations.

    Attributes:
        first: within the first `LENGTH` positions, where no slot is used twice.
        later: beyond them; infinite if the decoder fails there.
        place: the first wrong logits, in words.
        fault, hint: the mistake that gives these logits; empty if it is not known.
    """

    first: float
    later: float
    place: str = ""
    fault: str = ""
    hint: str = ""


class GenerationWork(Work):
    """A submission: `decoder.onnx`, `host.py` and `recipe.toml`."""

    @cached_property
    def secret(self) -> np.random.Generator:
        """Draws what the submission does not know."""
        return self.rng()

    @step
    def read(self) -> graph.Graph:
        """The graph, as one plain graph in FP32 and FP16."""
        self.examiner.begins("reading decoder.onnx", 3)
        return graph.read(submitted(self.folder, MODEL).read_bytes(), launcher=self.examiner.launcher)

    def hosted(self, model: bytes, *, ours: bool = False) -> HostedDecoder:
        """A decoder in its own process, which ends with the examination."""
        return self.closing.enter_context(HostedDecoder(model, self.examiner, ours=ours))

    @step
    def decoder(self) -> HostedDecoder:
        """The submission's."""
        return self.hosted(self.read.model)

    @step
    def answered(self) -> Answers:
        """Secret conversations of secret lengths, each on a cleared cache, against PyTorch."""
        decoder, rng = self.decoder, self.secret
        self.examiner.begins("answers: secret conversations through your decoder", 5)
        lengths = [
            1,
            *rng.integers(2, 12, 2),
            int(rng.integers(12, WINDOW - COUNT)),
            int(rng.integers(WINDOW + 16, LENGTH - COUNT)),
        ]
        first, place = self._errors(decoder, lengths)
        later = math.inf
        if first <= MOST_ERROR:
            try:
                later, place = self._errors(decoder, [int(rng.integers(LENGTH - 8, LENGTH)), *rng.integers(LENGTH + 8, 700, 2)])
            except EngineError as error:
                slot = f"Which slot does the token at position {LENGTH} belong in?"
                return Answers(first, later, f"It fails beyond position {LENGTH - 1}: {error}.", hint=slot)
        fault, hint = self._recognized(decoder, LENGTH + 40 if first <= MOST_ERROR else LENGTH - 60) if place else ("", "")
        return Answers(first, later, place, fault, hint)

    def _errors(self, decoder: HostedDecoder, lengths: list[int]) -> tuple[float, str]:
        from course_lib.labs.lab13_generation import network

        worst, place = 0.0, ""
        for length in map(int, lengths):
            tokens, sizes = conversation(self.secret, length)
            right, found = _right(tokens, sizes), fresh(decoder, tokens, sizes)
            worst = max(worst, network.error(right, found))
            wrong = [
                call for call in range(len(sizes)) if network.error(right[call : call + 1], found[call : call + 1]) > MOST_ERROR
            ]
            if wrong and not place:
                place = (
                    f"The first wrong scores are those after {sum(sizes[: wrong[0] + 1])} tokens, with a prompt of {length}."
                )
        return worst, place

    def _recognized(self, decoder: HostedDecoder, longest: int) -> tuple[str, str]:
        from course_lib.labs.lab13_generation import network

        try:
            probes = [conversation(self.secret, length) for length in (9, longest)]
            return network.recognized([(*probe, fresh(decoder, *probe)) for probe in probes])
        except EngineError:
            return "", ""

    @step
    def tables(self) -> tuple[LayerTable, LayerTable]:
        """The layer tables in FP16 for prompts, and for single tokens."""
        prompts, single = profiles(submitted_recipe(self.folder, RECIPE))
        if self.read.half_error:
            raise BuildError(self.read.half_error)
        self.examiner.begins("fused: your graph in FP16, compiled for prompts and for single tokens", 10)
        path = self.scratch / "half.onnx"
        path.write_bytes(self.read.half)
        build = self.examiner.with_rtx.build
        built = [build(path, one.model_copy(update={"targets": (ITS_TARGET,)})).layers for one in (prompts, single)]
        return built[0], built[1]


def answers(work: GenerationWork) -> Iterator[Criterion]:
    """The logits of secret conversations."""
    found = work.answered
    yield from _answers(found)
    work.figures["logits_error"] = min(max(found.first, found.later), 1e6)


def _answers(found: Answers) -> Iterator[Criterion]:
    hint = found.hint or "Compare with the recomputing decoder: one token, a prompt, a token after it. Where does it begin?"
    symptom = f"{found.place} They are those of a decoder {found.fault}." if found.fault else found.place
    name, bound = "relative error of the scores", f"at most {MOST_ERROR:g}"
    met = found.first <= MOST_ERROR
    yield Criterion(f"{name} up to position {LENGTH - 1}", f"{found.first:.1g}", bound, met, HALF, hint, symptom=symptom)
    if met:
        again, later = f"{name} from position {LENGTH} on, where slots are used again", found.later <= MOST_ERROR
        yield Criterion(again, f"{found.later:.1g}", bound, later, ALL, hint, symptom=symptom)


def _solved(work: GenerationWork, part: str = HALF) -> Criterion:
    found = work.answered
    met = found.first <= MOST_ERROR and (part == HALF or found.later <= MOST_ERROR)
    hint = "Solve task 1 first: a decoder with other scores than the right ones is not examined further."
    return replace(holds(f"{part} of task 1", met, HALF, hint=hint), symptom=f"The decoder does not have {part} of task 1.")


@dataclass(frozen=True)
class Request:
    """What a host is asked, and what the decoder will say.

    Attributes:
        count: the largest number of new bytes.
        position: of the prompt's first token.
        script: the bytes that the decoder says after the prompt.
    """

    prompt: bytes
    count: int
    position: int
    script: bytes

    @property
    def answer(self) -> bytes:
        """The right one."""
        end = self.script.find(STOP) + 1
        return self.script[: min(end or self.count, self.count)]

    @property
    def fewest(self) -> int:
        """Calls that the request needs."""
        edges = [self.position, *range(-(-self.position // LENGTH) * LENGTH, self.position + len(self.prompt), LENGTH)]
        parts = np.diff([*dict.fromkeys(edges), self.position + len(self.prompt)])
        return int((-(-parts // MOST_NEW)).sum()) + len(self.answer) - 1

    def __str__(self) -> str:
        return f"{len(self.prompt)} bytes at position {self.position}"


def requests(rng: np.random.Generator) -> list[Request]:
    """Secret requests of each kind: short, long, across the end of the ring, one byte, and an early newline."""

    def drawn(new: int, position: int, count: int, stop: int = -1) -> Request:
        text = rng.integers(97, 123, new + count).astype(np.uint8).tobytes()
        script = bytearray(text[new:])
        if stop >= 0:
            script[stop] = STOP
        return Request(text[:new], count, position, bytes(script))

    def between(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    return [
        drawn(between(3, 20), 0, between(5, 12)),
        drawn(between(10, 60), 0, 30, stop=between(3, 9)),
        drawn(between(5, 30), 0, 1),
        drawn(between(290, 380), 0, 4),
        drawn(between(60, 120), between(200, 240), 5),
        drawn(between(30, 90), between(300, 380), 12, stop=11),
        drawn(between(110, MOST_NEW), between(30, 100), 3),
        drawn(between(270, 330), between(450, 500), 3),
    ]


def loop(work: GenerationWork) -> Iterator[Criterion]:
    """The calls of a learner's host, and its answers."""
    asked = requests(work.rng())
    work.examiner.begins("loop: requests to your host", 1)
    questions = [([*one.prompt], one.count, one.position, [*one.script]) for one in asked]
    found = runner.call(submitted(work.folder, HOST), {"serve": questions}, work.examiner, program=host)["serve"]
    wrong = [f"{request}: {said}" for request, one in zip(asked, found, strict=True) if (said := wrong_answer(request, one))]
    hint = "Print position, number of tokens and answer of each call for the first request that is wrong."
    yield all_right("requests that are answered", wrong, len(asked), HALF, hint=hint)
    if not wrong:
        wasted = [
            f"{request}: {len(one['calls'])} calls, and {request.fewest} are enough"
            for request, one in zip(asked, found, strict=True)
            if len(one["calls"]) > request.fewest
        ]
        hint = "Which calls have scores that nothing reads, and which could be one call?"
        yield all_right("requests without a call too many", wasted, len(asked), hint=hint)


def wrong_answer(asked: Request, found: Any) -> str:
    """What is wrong with an answer and its calls, "" if it is right.

    Args:
        found: of `runner.call`, of any form.
    """
    if isinstance(found, runner.Failed):
        return "serve is not written yet" if found.empty else found.line
    answer, made = bytes(found["answer"]), [(int(position), list(map(int, tokens))) for position, tokens in found["calls"]]
    fed = bytes(token for _, tokens in made for token in tokens)
    expected = asked.position
    for number, (position, tokens) in enumerate(made, 1):
        if position != expected:
            return f"call {number} is at position {position}, and {expected} tokens are before it"
        expected += len(tokens)
    if not fed.startswith(asked.prompt):
        return "the calls do not feed the prompt"
    if fed[len(asked.prompt) :] != asked.script[: len(fed) - len(asked.prompt)]:
        return "a call after the prompt feeds another byte than the one that was chosen"
    right = asked.answer
    if answer == right:
        return ""
    if answer.startswith(right):
        return (
            "the answer goes on after its newline" if right.endswith(b"\n") else f"the answer has more than {asked.count} bytes"
        )
    if right.startswith(answer):
        return f"the answer ends after {len(answer)} of {len(right)} bytes"
    return "the answer does not have the most likely bytes"


def kept_apart(work: GenerationWork) -> Iterator[Criterion]:
    """Four scenes on one set of buffers."""
    solved = _solved(work, ALL)
    yield solved
    if not solved.met:
        return
    decoder, rng = work.decoder, work.secret
    work.examiner.begins("requests: four scenes on the same buffers", 3)
    decoder.fill(0.0, rng)
    (long, parts), (short, few) = conversation(rng, int(rng.integers(300, 500))), conversation(rng, int(rng.integers(10, 60)))
    decoder.feed(long, parts)
    mask = "Which slots does the mask show to the first token of a conversation, and how does it know?"
    wrong = _difference(_right(short, few), decoder.feed(short, few))
    yield _scene("a second conversation in the same buffers", wrong, HALF, mask)
    place = "A call writes its new tokens' slots. Which node of your graph changes others, and why?"
    yield _scene("a call that changes only its own slots", _changed_slots(decoder, rng), HALF, place)
    decoder.fill(GARBAGE, rng)
    wrong = _difference(_right(short, few), decoder.feed(short, few))
    yield _scene("a conversation over old entries", wrong, ALL, mask)
    back = "Do positions, mask and place of writing begin at `position` in each call?"
    yield _scene("a prompt in parts, and a step back", _in_parts(decoder, rng), ALL, back)


def fused(work: GenerationWork) -> Iterator[Criterion]:
    """What the compiler makes of the graph in FP16."""
    from course_lib.labs.lab13_generation import network

    solved = _solved(work)
    yield solved
    if not solved.met:
        return
    prompts, single = work.tables
    split = "TensorRT recognizes the operator Attention, or product, mask, softmax, product. What is between yours?"
    for name, table in (("prompts", prompts), ("a single token", single)):
        whole = attention_kernels(table)
        yield equals(f"attentions in one kernel, for {name}", f"{whole} of {BLOCKS}", f"{BLOCKS} of {BLOCKS}", HALF, hint=split)
    decoder = work.hosted(work.read.half)
    tokens, sizes = conversation(work.secret, 40)
    off = network.error(_right(tokens, sizes), fresh(decoder, tokens, sizes))
    range_of_half = "Which constant or product of your graph leaves the range of FP16, which ends at 65 504?"
    yield at_most("relative error of the scores in FP16", off, MOST_HALF_ERROR, HALF, hint=range_of_half)
    in_place = len(CACHES) - sum(writer != graph.IN_PLACE for writer in work.read.writers.values())
    others = f" (others by {', '.join(work.read.others)})" if work.read.others else ""
    every = f"{len(CACHES)} of {len(CACHES)}"
    by_scatter = "Which operator of operator set 24 takes the cache, the new entries and the first slot, and nothing else?"
    met = in_place == len(CACHES)
    yield Criterion("caches written in place", f"{in_place} of {len(CACHES)}{others}", every, met, ALL, by_scatter)
    copies = (
        "Which kernels write such a tensor? Print them with `seen`. Keys that are repeated for each query head are one cause."
    )
    name = "tensors of a cache's size that a single token's kernels write"
    yield at_most(name, large_tensors(single), len(CACHES), hint=copies)


def attention_kernels(table: LayerTable) -> int:
    """How many attentions are one kernel each: a softmax outside of these kernels belongs to one that is split."""
    whole = list(filter(_is_attention, table.kernels))
    inside = {node for kernel in whole for node in kernel.onnx_nodes}
    split = sum(operator == "Softmax" and node not in inside for node, operator in table.operators.items())
    return max(0, min(len(whole), BLOCKS - split))


def _is_attention(kernel: Layer) -> bool:
    """The compiler's own name for a fused attention. Other kernels have names that a graph can choose, but not this kind.

    It answers for each new token. One with more numbers hands entries of a cache to another attention.
    """
    named = kernel.kind == "kgen" and kernel.name.startswith(("_gemm_mha", "_gemv_mha"))
    return named and all(math.prod(map(abs, tensor.shape)) <= HEADS * SIZE for tensor in kernel.outputs)


def large_tensors(table: LayerTable) -> int:
    """Tensors of at least a cache's size that the kernels write; the caches themselves are `2 * BLOCKS`."""
    sizes = (math.prod(map(abs, tensor.shape)) for kernel in table.kernels for tensor in kernel.outputs)
    return sum(size >= math.prod(CACHE_SHAPE) for size in sizes)


def profiles(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """The recipe with its profile for prompts alone, and with that for single tokens alone.

    Raises:
        BuildError: it has other profiles than these two.
    """
    if recipe.precision != "fp16":
        raise BuildError(
            f'recipe.toml says precision = "{recipe.precision}"; the grader compiles your graph in "fp16"', code=PRECISION
        )
    if len(recipe.profiles) != 2:
        raise BuildError(f"recipe.toml has {len(recipe.profiles)} profiles, expected two: prompts, and one token", code=PROFILE)
    found: dict[bool, Recipe] = {}
    for profile in recipe.profiles:
        shapes = profile.root.get("tokens")
        if shapes is None or len(profile.root) != 1 or len(shapes.max) != 2:
            raise BuildError("each profile gives min, opt and max of `tokens` (1, new), and of no other input", code=PROFILE)
        found[shapes.max[1] == 1] = recipe.model_copy(update={"profiles": (profile,)})
    if len(found) != 2:
        lacks = "prompts" if True in found else "a single token, with max = (1, 1)"
        raise BuildError(f"both profiles are for the same use: one must be for {lacks}", code=PROFILE)
    shapes = found[False].profiles[0].root["tokens"]
    if not all(shapes.contains((1, size)) for size in (2, MOST_NEW)) or shapes.max[1] > LENGTH:
        raise BuildError(
            f"the profile for prompts goes from {shapes.min[1]} to {shapes.max[1]} tokens: the service's calls have 2 to {MOST_NEW}",
            code=PROFILE,
        )
    return found[False], found[True]


def speed(work: GenerationWork) -> Iterator[Criterion]:
    """One race of recomputing, the reference and the submission."""
    from course_lib.labs.lab13_generation import network, reference

    solved = _solved(work, ALL)
    yield solved
    if not solved.met:
        return
    work.examiner.begins("speed: recomputing, the reference and your decoder, interleaved", work.examiner.measure_s)
    naive = work.hosted(network.recomputing(), ours=True)
    theirs = None if absent(reference) else work.hosted(reference.serialized(), ours=True)
    work.comparison = measured(work, work.decoder, theirs, naive)
    yield from race(work.comparison.latencies())


def race(latencies: Latencies) -> Iterator[Criterion]:
    """What follows from the times of a token; undecided while an interval contains a bound."""
    same = "Does your graph do more work late in a conversation than early? The ring has as many slots in each call."
    copies = "Which of your nodes read or write a whole cache in each call, although a call adds one slot?"
    rows = [
        (
            "speed at late positions over early ones",
            speedup(latencies["yours, early"], latencies["yours"], seed=0),
            0.7,
            0.4,
            same,
        ),
        (f"tokens per second over {NAIVE}", speedup(latencies[NAIVE], latencies["yours"], seed=0), 8.0, 3.0, copies),
    ]
    if "reference" in latencies:
        over = speedup(latencies["reference"], latencies["yours"], seed=0)
        rows.append(("tokens per second over the reference", over, 0.8, 0.4, copies))
    for name, found, whole, half, hint in rows:
        yield speed_at_least(name, found, half, HALF, hint=hint)
        yield speed_at_least(name, found, whole, hint=hint)
    if "reference" not in latencies:
        yield open_without_reference("tokens per second over the reference", "not measured")


def measured(work: GenerationWork, yours: HostedDecoder, reference: HostedDecoder | None, naive: HostedDecoder) -> Comparison:
    """Measure until the tier is decided or the time is over. Each timed answer is compared with the right one.

    Raises:
        EngineError: the submission fails, or a timed answer is wrong.
    """
    rng = work.secret
    subjects: dict[str, _Tokens] = {NAIVE: _Tokens(naive, "late", cached=False)}
    for name, decoder in (("reference", reference), ("yours", yours)):
        if decoder:
            subjects |= {f"{name}, early": _Tokens(decoder, "early"), name: _Tokens(decoder, "late")}
    drawn = {when: [text(rng, int(rng.integers(*span)) + STEPS) for _ in range(8)] for when, span in SPANS.items()}
    right = {
        tokens.tobytes(): _right(tokens, [len(tokens) - STEPS, *[1] * STEPS])[1:]
        for several in drawn.values()
        for tokens in several
    }

    def feeds() -> dict[str, np.ndarray]:
        return {when: several[int(rng.integers(len(several)))] for when, several in drawn.items()}

    def look(fed: Mapping[str, np.ndarray]) -> None:
        for name in ("yours, early", "yours"):
            when = subjects[name].when
            if wrong := _difference(right[fed[when].tobytes()], subjects[name].answered):
                raise EngineError(f"timed tokens at {when} positions: {wrong}")

    return work.examiner.measured(
        lambda: compare(
            subjects,
            feeds,
            baseline=NAIVE,
            time_limit_s=work.examiner.measure_s,
            min_rounds=40,
            warmup=3,
            settled=lambda latencies: all(one.met is not None or one.code for one in race(latencies)),
            after_round=look,
        )
    )


@dataclass
class _Tokens:
    """A subject of the comparison: the time of a token. With a cache, the tokens before it are fed first, outside of the clock."""

    decoder: HostedDecoder
    when: str
    cached: bool = True
    answered: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Milliseconds of a token, by the examiner's clock."""
        prompt, tokens = np.split(feeds[self.when], [len(feeds[self.when]) - STEPS])
        if not self.cached:
            return self.decoder.timed(np.append(prompt, tokens[:1]), [len(prompt) + 1], 0)[0]
        self.decoder.feed(prompt, calls(0, len(prompt)))
        spent, self.answered = self.decoder.timed(tokens, [1] * STEPS, len(prompt))
        return spent / STEPS


def text(rng: np.random.Generator, length: int) -> np.ndarray:
    """Tokens that no table can hold: held-out text from a secret place, with bytes at secret places replaced."""
    from course_lib.models import course_text

    whole = np.frombuffer(course_text("test"), np.uint8).astype(np.int64)
    begin = int(rng.integers(len(whole) - length))
    tokens = whole[begin : begin + length].copy()
    replaced = rng.random(length) < 0.15
    tokens[replaced] = rng.integers(0, VOCABULARY, int(replaced.sum()))
    return tokens


def conversation(rng: np.random.Generator, prompt: int) -> tuple[np.ndarray, list[int]]:
    """Tokens, and the sizes of the calls that feed them: a prompt, and `COUNT` single tokens."""
    return text(rng, prompt + COUNT), [*calls(0, prompt), *[1] * COUNT]


def fresh(decoder: HostedDecoder, tokens: np.ndarray, sizes: list[int]) -> np.ndarray:
    """The logits after each call, on a cache of zeros."""
    decoder.fill(0.0, np.random.default_rng(0))
    return decoder.feed(tokens, sizes)


def _right(tokens: np.ndarray, sizes: list[int]) -> np.ndarray:
    from course_lib.labs.lab13_generation import network

    return network.logits_after(tokens)[np.cumsum(sizes) - 1]


def _difference(right: np.ndarray, found: np.ndarray) -> str:
    from course_lib.labs.lab13_generation import network

    off = network.error(right, found)
    return f"the scores have a relative error of {off:.1g}" if off > MOST_ERROR else ""


def _scene(name: str, wrong: str, needed_for: str, hint: str) -> Criterion:
    return replace(holds(name, not wrong, needed_for, hint=hint), symptom=f"In the scene {name!r}, {wrong}.")


def _changed_slots(decoder: HostedDecoder, rng: np.random.Generator) -> str:
    """Which slots a call changes that are not its own, for one token, a few and many, in two laps of the ring."""
    for new in (1, int(rng.integers(2, 9)), MOST_NEW):
        for position in (0, LENGTH - new, LENGTH + int(rng.integers(0, LENGTH - new + 1))):
            decoder.fill(1.0, rng)
            before = decoder.cache()
            decoder.feed(text(rng, new), [new], position)
            after = decoder.cache()
            own = np.isin(np.arange(LENGTH), np.arange(position, position + new) % LENGTH)
            for name in CACHES:
                changed = (before[f"past_{name}"] != after[f"past_{name}"]).any(axis=(0, 1, 3))
                if (changed & ~own).any():
                    slot = int(np.flatnonzero(changed & ~own)[0])
                    return f"a call for {new} at position {position} changes slot {slot} of {name}"
                if not changed[own].all():
                    return f"a call for {new} at position {position} does not change all of its own slots of {name}"
    return ""


def _in_parts(decoder: HostedDecoder, rng: np.random.Generator) -> str:
    """A prompt in three calls; then a few tokens are taken back, and others follow."""
    length = int(rng.integers(30, 90))
    tokens = text(rng, length)
    cuts = np.sort(rng.choice(np.arange(2, length - 1), 2, replace=False))
    sizes = [int(size) for size in np.diff([0, *cuts, length])]
    if wrong := _difference(_right(tokens, sizes), decoder.feed(tokens, sizes)):
        return wrong
    back, others = int(rng.integers(2, 10)), text(rng, 6)
    again = decoder.feed(others, [1] * len(others), length - back)
    whole = np.concatenate([tokens[: length - back], others])
    return _difference(_right(whole, [length - back, *[1] * len(others)])[1:], again)
