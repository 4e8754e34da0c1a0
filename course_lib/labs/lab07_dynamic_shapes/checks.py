"""What is looked at in each task of lab 07, and the steps that the checks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.benchmark import Comparison, compare, speedup
from course_lib.engines import ModelSource, Plan
from course_lib.errors import PROFILE, EngineError, PrecisionError, RecipeError
from course_lib.exercises import Case
from course_lib.labs.framework import runner
from course_lib.labs.framework.criteria import (
    ALL,
    HALF,
    Criterion,
    all_right,
    at_least,
    equals,
    holds,
    open_without_reference,
    reaches_threshold,
    speed_at_least,
)
from course_lib.labs.framework.examination import TimedWorker, agree_on_clock, ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.submission import submitted, submitted_recipe
from course_lib.labs.lab07_dynamic_shapes import given, reference
from course_lib.labs.lab07_dynamic_shapes.given import FILE, LARGEST, MOST, Box, Habits
from course_lib.recipe import Recipe

SEARCH, RECIPE = "search.py", "recipe.toml"
SOURCE = ModelSource("course_lib.labs.lab07_dynamic_shapes.network:masked_encoder")
TRACES, ASKED = 24, 6  # secret traces that have a known least cost, and those of one examination
# Cost over the least one. Measured in the worst of six traces: 3000 random pairs up to 1.09, the best box first up to 1.2.
SEARCH_FULL, SEARCH_HALF = 1.005, 1.03
# Points for the cost. A tier allows what leaves out that part of the possible saving, which goes from one profile for everything to
# the best three; or, where little can be saved, what is that factor over the best.
FULL, PARTIAL = (0.95, 1.05), (0.75, 1.15)
OVER_EAGER, OVER_ONE = 1.5, 1.2  # least speed over PyTorch at the largest shape, and over one profile for everything
# The least cost of a batch in each trace, by the reference's search: the learner's bundle has these numbers, and not the search.
LEAST = (
    0.917199, 1.883255, 0.744951, 3.423911, 0.939225, 2.777734, 1.462148, 1.191661,
    1.881934, 1.610553, 2.156150, 2.319188, 2.256455, 1.165571, 1.229611, 1.255733,
    1.248884, 1.533171, 1.552253, 1.340992, 2.785794, 2.572335, 1.433799, 2.990784,
)  # fmt: skip
Latencies = Mapping[str, np.ndarray]


class ShapesWork(Work):
    """A submission: `recipe.toml`, `search.py` and `service.json`."""

    learner_file = FILE

    @step
    def recipe(self) -> Recipe:
        """The profiles, which every machine can run."""
        recipe = submitted_recipe(self.folder)
        if not 1 <= len(recipe.profiles) <= MOST:
            raise RecipeError(f"recipe.toml has {len(recipe.profiles)} profiles; the service takes 1 to {MOST}", code=PROFILE)
        if recipe.precision != "fp32":
            raise PrecisionError(f'recipe.toml says precision = "{recipe.precision}"; profiles are compared in fp32 here')
        if found := _differing(recipe):
            raise RecipeError(found, code=PROFILE)
        for _, largest in given.ranges(recipe):
            if largest[0] > LARGEST[0] or largest[1] > LARGEST[1]:
                raise RecipeError(
                    f"a profile reaches {_spell(largest)}; no batch of the service is larger than {_spell(LARGEST)}",
                    code=PROFILE,
                )
        return recipe

    @step
    def model(self) -> Path:
        """The network that is served."""
        from course_lib.labs.lab07_dynamic_shapes import network

        path = self.scratch / "model.onnx"
        path.write_bytes(network.exported(self.examiner.opset))
        return path

    @step
    def plan(self) -> Plan:
        """The engine with the submission's profiles."""
        return self.examiner.build(self.model, self.recipe)

    @step
    def hidden(self) -> np.ndarray:
        """Counts of another day of the learner's service."""
        return given.one_day(given.habits(self.learner), self.rng()).counts()

    @step
    def measurement(self) -> Comparison:
        """What a batch costs with the submission's profiles, one profile, the best three, and PyTorch at the largest shape."""
        self.comparison = measured(self)
        return self.comparison


def cover(work: ShapesWork) -> Iterator[Criterion]:
    """Whether every shape of the contract is accepted by an engine that can be built."""
    taken = routes(given.ranges(work.recipe))
    rejected = np.argwhere(taken < 0) + 1
    example = f" ({_spell(rejected[0])} is not)" if len(rejected) else ""
    hint = "The service may receive 1 to 16 texts of 1 to 128 tokens, not only yesterday's shapes. Which corner is left out?"
    unseen = not given.yesterday(work.learner).counts()[taken < 0].any()
    yield holds("every shape of yesterday is accepted", unseen, HALF, hint=hint)
    found = f"{taken.size - len(rejected):,} of {taken.size:,}{example}"
    yield Criterion("shapes that are accepted", found, f"{taken.size:,} of {taken.size:,}", not len(rejected), ALL, hint)
    yield at_least("kernels of the engine with these profiles", len(work.plan.layers.kernels), 1, HALF)


def account(work: ShapesWork) -> Iterator[Criterion]:
    """A learner's `account`, on secret traffic and profiles."""
    shares, padding = account_cases(work.rng())
    results = _called(work, "account", [case.arguments for case in shares])
    hint = "Follow one batch through the profiles by hand: which one takes it, and how many tokens are computed for it?"
    for key, cases, needed_for in (("shares", shares, HALF), ("padding", padding, ALL)):
        parts = [_part(result, key) for result in results]
        yield runner.case_criterion(f"accounts with the right {key}", cases, parts, needed_for, hint=hint)


def _part(result: Any, key: str) -> Any:
    if not isinstance(result, Mapping):
        return result
    return result.get(key, runner.Failed(f"the result has no key {key!r}, only {', '.join(map(repr, result))}"[:120]))


def account_cases(rng: np.random.Generator) -> tuple[list[Case], list[Case]]:
    """For shares and for padding: each kind of profiles with a secret day."""
    small, large = (int(rng.integers(2, 5)), int(rng.integers(20, 50))), (int(rng.integers(6, 12)), int(rng.integers(60, 110)))
    edge = int(rng.integers(20, 60))
    kinds = {
        "nested profiles": [((1, 1), small), ((1, 1), large), ((1, 1), LARGEST)],
        "the largest profile first": [((1, 1), LARGEST), ((1, 1), large), ((1, 1), small)],
        "profiles side by side": [((1, 1), (16, edge)), ((1, edge + 1), LARGEST)],
        "profiles that reject some batches": [((1, 1), small), ((1, 1), large)],
    }
    shares, padding = [], []
    for name, ranges in kinds.items():
        counts = given.one_day(Habits.drawn(rng), rng, minutes=0.5).counts()
        arguments = ([list(map(list, both)) for both in ranges], counts)
        right, padded = bill(ranges, counts)
        by_size = sorted(ranges, key=lambda both: both[1])
        best_fit = dict(zip(by_size, bill(by_size, counts)[0], strict=True))
        mistakes = {"a batch goes to the profile that fits best, and not to the first one": [best_fit[both] for both in ranges]}
        shares.append(Case(arguments, right, mistakes, shown=name, tolerance=1e-4))
        mistaken = {"padding is compared with the text, and not with the computed tokens": padded / (1 - padded)}
        padding.append(Case(arguments, padded, mistaken, shown=name, tolerance=1e-4))
    return shares, padding


def search(work: ShapesWork) -> Iterator[Criterion]:
    """A learner's `cheapest`, on secret traces."""
    seeds = [int(seed) for seed in work.rng().choice(TRACES, ASKED, replace=False)]
    results = _called(work, "cheapest", [trace(seed) for seed in seeds])
    wrong, over, largest_first = [], [], False
    for number, (seed, result) in enumerate(zip(seeds, results, strict=True), 1):
        try:
            boxes = _boxes(result)
            largest_first = largest_first or (len(boxes) > 1 and boxes[0] == LARGEST)
            over.append(price(boxes, *trace(seed)) / LEAST[seed])
        except EngineError as error:
            wrong.append(f"trace {number}: {error}")
    yield all_right("usable choices", wrong, len(seeds), HALF, hint="Print what `cheapest` returns for yesterday.")
    if over:
        worst = max(over)
        hint = "Which batches fit into both boxes of a pair? Is the box that saves most alone a part of the best pair?"
        if largest_first:
            hint = f"The first box that accepts a batch takes it. What is left for the others if the first one is {_spell(LARGEST)}?"
        for bound, needed_for in ((SEARCH_HALF, HALF), (SEARCH_FULL, ALL)):
            found, met = f"{worst:.4f}x", worst <= bound
            yield Criterion("cost over the least one, in the worst trace", found, f"at most {bound:g}x", met, needed_for, hint)


def _called(work: ShapesWork, function: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
    work.examiner.begins(f"{function}: your function on secret traffic", 3)
    return runner.call(submitted(work.folder, SEARCH), {function: calls}, work.examiner, time_limit_s=90.0)[function]


def _boxes(result: Any) -> list[Box]:
    if isinstance(result, runner.Failed):
        raise EngineError(str(result))
    try:
        boxes = [(int(texts), int(tokens)) for texts, tokens in result]
    except (TypeError, ValueError, OverflowError):
        raise EngineError(f"expected a list of boxes (texts, tokens), found {result!r:.60}") from None
    fit = all(1 <= texts <= LARGEST[0] and 1 <= tokens <= LARGEST[1] for texts, tokens in boxes)
    if not fit or len(boxes) > MOST or LARGEST not in boxes:
        raise EngineError(f"expected 1 to {MOST} boxes, of which {_spell(LARGEST)} is the largest, found {boxes!r:.60}")
    return boxes


@cache
def trace(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A secret machine and a secret day: the latency of every shape, and how often each comes, both ``(16, 128)``."""
    rng = np.random.default_rng([7, seed])
    counts = given.one_day(Habits.drawn(rng), rng, minutes=2.0).counts()
    texts, tokens = np.indices(LARGEST) + 1
    latency = rng.uniform(20, 300) + texts * tokens * (1 + rng.uniform(0, 1) * tokens / LARGEST[1])
    return latency / 500, counts


def price(boxes: Sequence[Box], latency: np.ndarray, counts: np.ndarray) -> float:
    """The mean cost of a batch, if the boxes are tried in this order."""
    shares, _ = bill([((1, 1), box) for box in boxes], counts)
    return sum(share * float(latency[b - 1, s - 1]) for share, (b, s) in zip(shares, boxes, strict=True))


def routes(ranges: Sequence[tuple[Box, Box]]) -> np.ndarray:
    """The profile of each shape: ``routes[b - 1, s - 1]`` is its index, -1 if no profile accepts the shape; ``(16, 128)``."""
    taken = np.full(LARGEST, -1)
    for index, (low, high) in reversed(list(enumerate(ranges))):
        taken[max(low[0] - 1, 0) : high[0], max(low[1] - 1, 0) : high[1]] = index
    return taken


def bill(ranges: Sequence[tuple[Box, Box]], counts: np.ndarray) -> tuple[list[float], float]:
    """Share of the batches that each profile takes, and share of padding among all computed tokens."""
    taken, (texts, tokens) = routes(ranges), np.indices(LARGEST) + 1
    each = [float(counts[taken == index].sum()) for index in range(len(ranges))]
    computed = sum(count * b * s for count, (_, (b, s)) in zip(each, ranges, strict=True))
    text = float((counts * texts * tokens)[taken >= 0].sum())
    return [count / float(counts.sum()) for count in each], 1 - text / computed if computed else 0.0


def cost(work: ShapesWork) -> Iterator[Criterion]:
    """The cost of a batch of the hidden day, by the clock."""
    accepted = float(work.hidden[routes(given.ranges(work.recipe)) >= 0].sum() / work.hidden.sum())
    every = "Which batches of another day does no profile accept?"
    yield equals("accepted batches of another day", f"{100 * accepted:.4g} %", "100 %", HALF, hint=every)
    if accepted == 1:
        yield from race(work.measurement.latencies())


def race(latencies: Latencies) -> Iterator[Criterion]:
    """What follows from the costs of a batch; undecided while an interval contains a bound."""
    hint = "Sum latency times count over yesterday's shapes. Which shapes cause most of the padding, and which profile would reduce it?"
    for name, baseline, bound in (
        ("PyTorch at the largest shape", "eager", OVER_EAGER),
        ("one profile", "one profile", OVER_ONE),
    ):
        found = speedup(latencies[baseline], latencies["yours"], seed=0)
        yield speed_at_least(f"speed over {name}", found, bound, HALF, hint=hint)
    if "reference" not in latencies:
        yield open_without_reference("cost of a batch", f"{np.median(latencies['yours']):.3g} ms")
        return
    for tier_bounds, needed_for in ((PARTIAL, HALF), (FULL, ALL)):
        yield _cost(latencies, tier_bounds, needed_for, hint)


def _cost(latencies: Latencies, bounds: tuple[float, float], needed_for: str, hint: str) -> Criterion:
    part, factor = bounds
    one, best = latencies["one profile"], latencies["reference"]
    allowed = np.maximum(one - part * (one - best), factor * best)
    most = float(np.median(allowed))
    spare = speedup(allowed, latencies["yours"], seed=0)  # of the same rounds, so that a slow machine moves both sides
    found = "{:.2f} ms [{:.2f}-{:.2f}]".format(*(most / ratio for ratio in (spare.median, spare.high, spare.low)))
    bound = f"at most {most:.2f} ms, {100 * part:.0f} % of the saving"
    return Criterion("cost of a batch", found, bound, reaches_threshold(spare, 1.0), needed_for, hint)


def measured(work: ShapesWork) -> Comparison:
    """The race. Each timed answer is compared with PyTorch's."""
    examiner, rng, recipe = work.examiner, work.rng(), work.recipe
    examiner.begins("cost: one profile, the best three, and yours, interleaved", examiner.measure_s)
    boxes = [largest for _, largest in given.ranges(recipe)]
    eager = work.enter_context(examiner.baseline(SOURCE))
    yours = work.enter_context(examiner.engine(examiner.runnable(work.model, recipe, work.plan)))
    full = given.batch(rng)
    for box in boxes:  # before the first one is timed
        _check_answers(box, eager.infer(given.cut(full, box)), yours.infer(given.cut(full, box)))
    one = _of_ours(work, [LARGEST])
    latency = examiner.measured(
        lambda: given.measured(lambda box: one.time_ms(given.cut(full, box))), device_clock=one.device_clock
    )
    services = {
        "eager": Service(eager, [LARGEST], [1.0]),
        "one profile": Service(one, [LARGEST], [1.0]),
        "yours": Service(yours, boxes, bill(given.ranges(recipe), work.hidden)[0]),
    }
    if not absent(reference):
        best = reference.cheapest(latency, work.hidden)
        services["reference"] = Service(_of_ours(work, best), best, bill([((1, 1), box) for box in best], work.hidden)[0])
    clock = agree_on_clock(
        (service.engine, given.batch(rng, service.boxes[0])) for name, service in services.items() if name != "eager"
    )
    comparison = examiner.measured(
        lambda: compare(
            services,
            lambda: given.batch(rng),
            baseline="eager",
            time_limit_s=examiner.measure_s,
            min_rounds=30,
            warmup=2,
            settled=lambda latencies: all(one.met is not None or one.code for one in race(latencies)),
        ),
        device_clock=yours.device_clock,
    )
    for box, (feeds, answers) in services["yours"].answered.items():
        _check_answers(box, eager.infer(feeds), answers)
    return replace(comparison, clock=clock)


def _of_ours(work: ShapesWork, boxes: Sequence[Box]) -> TimedWorker:
    """One of the course's own engines, for comparison."""
    with ours():
        plan = work.examiner.runnable(work.model, given.recipe(*boxes))
    return work.enter_context(work.examiner.reference(plan))


@dataclass(frozen=True)
class Service:
    """An engine that serves traffic. ``time_ms`` is what a batch costs on average: the time of each box, weighted by its share.

    Attributes:
        answered: inputs and outputs of each box's last call.
    """

    engine: TimedWorker
    boxes: Sequence[Box]
    shares: Sequence[float]
    answered: dict[Box, tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]] = field(default_factory=dict, repr=False)

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """Mean cost of a batch, from one call of each box that is used; `feeds` are cut to its shape."""
        spent = 0.0
        for box, share in zip(self.boxes, self.shares, strict=True):
            if share > 0:
                inputs = given.cut(feeds, box)
                elapsed, answer = self.engine.timed(inputs)
                self.answered[box] = inputs, answer
                spent += share * elapsed
        return spent


def _check_answers(box: Box, right: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> None:
    want, have = right["logits"], found.get("logits")
    if have is None or have.shape != want.shape or not np.allclose(have, want, rtol=0.02, atol=0.05):
        raise EngineError(f"the engine's logits at {_spell(box)} are not PyTorch's")


def _differing(recipe: Recipe) -> str:
    """Where a profile is not one of both inputs with the same N and S, in words, or ""."""
    for number, one in enumerate(recipe.profiles):
        tokens, mask = (one.root.get(name) for name in ("tokens", "mask"))
        if tokens is None or mask is None or len(one.root) != 2:
            return f"profile {number} is for {', '.join(one.root)[:60]}; expected tokens (N, S, 32) and mask (N, S)"
        for first, second in ((tokens.min, mask.min), (tokens.opt, mask.opt), (tokens.max, mask.max)):
            if first != (*second, given.WIDTH):
                return f"profile {number} has {first} for tokens and {second} for mask; expected (N, S, 32) and (N, S)"
    return ""


def _spell(box: Sequence[int]) -> str:
    return f"{box[0]} x {box[1]}"
