"""What is looked at in each task of lab 03. Engines are built from the course's own networks; no task is timed without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from course_lib.engines import Compiler, LayerTable, split_target
from course_lib.engines.backends.tensorrt.timing_cache import FOLDER_VARIABLE
from course_lib.errors import EngineError, RecipeError
from course_lib.exercises.exercise import Case
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_right, at_least, at_most, equals, holds
from course_lib.labs.framework.lab import Work
from course_lib.labs.framework.runner import Failed, call, case_criterion
from course_lib.labs.framework.submission import checked, read_json, submitted_recipe
from course_lib.labs.lab03_tuning import given
from course_lib.labs.lab03_tuning.device import Device, Problem, problem
from course_lib.recipe import Recipe

if TYPE_CHECKING:
    import onnx

RECIPE, TIMING, CACHE = "recipe.toml", "timing.py", "timing_cache.py"
MOST_BYTES = 64 << 10
LAYERS = 30
_WITHIN, _TIME_WITHIN = 0.01, 0.03  # of the fastest tactic's time, and of the chosen tactic's own time
_GOOD, _AGREE = 27, 25  # of the layers
_REBUILD_SHARE = 0.8  # of the time of the first build; recorded: 0.16 on an H200 at level 3, 0.55 on an H100 at level 2
Difference = Literal["kernels", "tactics", "weights", "nothing"]
Verdict = Literal["as fast", "slower", "open"]
_WORDS: dict[Difference, dict[Difference, str]] = {  # about the wrong answer to a night, by the right one
    "nothing": {
        "kernels": "the same operators are fused",
        "tactics": "each kernel has its tactic of yesterday",
        "weights": "the files differ, and their weights do not",
    },
    "weights": {"nothing": "the tables agree, and the weights in the files do not"},
    "tactics": {"kernels": "the same operators are fused", "nothing": "the tables differ in a column"},
    "kernels": {"tactics": "the kernels do not even do the same work", "nothing": "the tables have other kernels"},
}
_T = TypeVar("_T")
Placed = tuple[dict[str, Any], dict[str, str]]  # a layer and its machine
_of_answers = partial(case_criterion, of_function=False)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NightAnswer(_Answer):
    """What differs between two builds, and how many of the later engine's kernels have a tactic that the earlier one does not have."""

    differs: Difference
    new_tactics: Annotated[int, Field(ge=0)]


class ConditionAnswer(_Answer):
    """The ratio of the median time to that of engines that were built alone, its interval, and what follows from it."""

    ratio: float
    low: float
    high: float
    verdict: Verdict


class BuildsAnswer(_Answer):
    """All conditions of the record, and the one for a host whose cores are full."""

    conditions: dict[str, ConditionAnswer]
    setting: str


class TuningWork(Work):
    """Engines are built once for each model and recipe, all in one process."""

    learner_file = given.ANSWERS

    @cached_property
    def instance(self) -> given.Instance:
        """The data of this learner."""
        read_json(self.folder / given.ANSWERS, MOST_BYTES)  # a file that cannot be read is an error, not a missing id
        return given.drawn(self.learner)

    @cached_property
    def compiler(self) -> Compiler:
        """The process that builds."""
        return self.enter_context(Compiler(given.BUILDER))

    def answer(self, section: str, kind: Any) -> Any:
        """One section of the answer file."""
        answers = read_json(self.folder / given.ANSWERS, MOST_BYTES)
        if not isinstance(answers, dict) or section not in answers:
            raise EngineError(
                f'{given.ANSWERS} does not have "{section}" yet: the cell that saves it has not run or has failed'
            )
        return checked(kind, answers[section], f"{given.ANSWERS}: {section}")

    def layers(self, model: onnx.ModelProto, recipe: Recipe) -> LayerTable:
        """The layer table of an engine."""
        asked = f"engine {hash(model.SerializeToString())} {recipe!r}"
        return self.once(asked, lambda: self.compiler.build(model, recipe).layers)

    def kernels(self, model: onnx.ModelProto, recipe: Recipe) -> int:
        """The number of kernels of an engine."""
        return len(self.layers(model, recipe).kernels)


def widths(work: TuningWork) -> Iterator[Criterion]:
    """The chosen widths against those of the trained network, by the engines that they give."""
    width = Annotated[int, Field(ge=1, le=4096, strict=True)]
    trained, chosen = work.instance.widths, work.answer("widths", dict[str, width])
    if chosen.keys() != trained.keys():
        raise EngineError(f"widths has {', '.join(chosen)}: expected a width for each of {', '.join(trained)}")
    narrower = [f"{name} is {width}" for name, width in chosen.items() if width < trained[name]]
    hint = "A narrower layer loses channels that were trained. In which direction can you change a width?"
    yield all_right("widths that keep every trained channel", narrower, len(trained), HALF, hint=hint)
    wider = [f"{name} is {width}" for name, width in chosen.items() if width >= trained[name] + 8]
    hint = "Every channel costs memory and time in each run. What is the next width that needs no padding?"
    yield all_right("widths raised by fewer than 8 channels", wider, len(trained), ALL, hint=hint)
    if narrower or wider:
        return
    even = {name: width + width % 2 for name, width in trained.items()}
    now, first, fewest = (work.kernels(given.network(one), given.network_recipe()) for one in (chosen, trained, even))
    hint = "Print the kernels of your engine with the channels that they write. Which kernels only pad?"
    yield at_most("kernels of the engine", now, (first + fewest) // 2, HALF, hint=hint)
    yield at_most("kernels of the engine", now, fewest, ALL, hint=hint)
    fewer = [{**chosen, name: trained[name]} for name in chosen if chosen[name] != trained[name]]
    needless = sum(work.kernels(given.network(one), given.network_recipe()) <= now for one in fewer)
    hint = "Set one width back at a time and build. Not every odd width adds a kernel."
    yield equals("changed widths that remove no kernel", needless, 0, ALL, hint=hint)


def recipe(work: TuningWork) -> Iterator[Criterion]:
    """The profile of `recipe.toml`, and the kernels of the encoder that is tuned for its opt."""
    ranges = next((profile["tokens"] for profile in submitted_recipe(work.folder).profiles if "tokens" in profile.root), None)
    if ranges is None:
        raise RecipeError("recipe.toml has no profile for the input tokens: write it with given.encoder_recipe(batch, length)")
    expected = given.encoder_recipe(1, work.instance.length).profiles[0]["tokens"]
    hint = "given.encoder_recipe(batch, length) has the smallest and the largest shape of the service."
    yield equals("smallest and largest shape", (ranges.min, ranges.max), (expected.min, expected.max), HALF, hint=hint)
    yield equals("tokens of a sequence in opt", ranges.opt[1], work.instance.length, HALF, hint=hint)
    if ranges.min != expected.min or ranges.max != expected.max or ranges.opt[1] != work.instance.length:
        return
    batches = 1, ranges.opt[0], min(ranges.opt[0] + 1, given.SEQUENCES[1])
    recipes = (given.encoder_recipe(batch, work.instance.length) for batch in batches)
    fewest, now, more = (work.kernels(given.encoder(), one) for one in recipes)
    hint = "Build for a batch of 1 and of 256. Between which batches does the number of kernels change?"
    yield at_most("kernels of the encoder", now, fewest, HALF, unit=f"with opt batch {batches[1]}", hint=hint)
    if now > fewest:
        return
    hint = "Halve the interval until two neighbors differ."
    yield holds("a larger opt batch needs more kernels", more > fewest, ALL, hint=hint)


def rebuild(work: TuningWork) -> Iterator[Criterion]:
    """What the answers say about two builds of each night."""
    found = work.answer("nights", dict[str, NightAnswer])
    kinds, counts = [], []
    for name, night in work.instance.nights().items():
        before, after = (work.layers(*one) for one in (night.before, night.after))
        kind, new = difference(night, before, after)
        kinds.append(Case((name,), kind, shown=name))
        mistakes = {"that is the number of all kernels": len(after.kernels)}
        counts.append(Case((name,), new, mistakes, shown=name))
    answers = [found.get(name) for name in given.NIGHTS]
    hint = "Compare in this order: fused operators, tactics, weights. The bytes of a plan or of a file decide nothing."
    right = _of_answers("nights with the right difference", kinds, [one and one.differs for one in answers], HALF, hint=hint)
    wrong = [(case, one) for case, one in zip(kinds, answers, strict=True) if one and one.differs != case.expected]
    reasons = [(case.shown, _WORDS[case.expected].get(one.differs)) for case, one in wrong]
    yield replace(right, expected="; ".join(f"{night}: {reason}" for night, reason in reasons if reason))
    hint = "A kernel counts if no kernel of yesterday's engine has its tactic."
    yield _of_answers("nights with the right count", counts, [one and one.new_tactics for one in answers], hint=hint)


def difference(night: given.Night, before: LayerTable, after: LayerTable) -> tuple[Difference, int]:
    """What differs between the two builds of a night, and how many tactics are new."""
    operators = [[table.fused_operators(kernel) for kernel in table.kernels] for table in (before, after)]
    earlier = {kernel.tactic for kernel in before.kernels}
    new = sum(kernel.tactic not in earlier for kernel in after.kernels)
    if operators[0] != operators[1]:
        return "kernels", new
    weights = [list(model.graph.initializer) for model, _ in (night.before, night.after)]
    return "tactics" if new else "nothing" if weights[0] == weights[1] else "weights", new


@dataclass(frozen=True)
class Choice:
    """What `fastest` chose for one layer in one build, after the runs that `order` asked for; or why there is no choice."""

    problem: Problem
    order: Sequence[str] = ()
    tactic: str = ""
    ms: float = 0.0
    wrong: str = ""

    @property
    def good(self) -> bool:
        """Whether the tactic is as fast as the fastest."""
        return self.problem.true_ms[self.tactic] <= (1 + _WITHIN) * self.problem.best_ms

    @property
    def time_ratio(self) -> float:
        """The returned time over the tactic's own."""
        return self.ms / self.problem.true_ms[self.tactic]


def timing(work: TuningWork) -> Iterator[Criterion]:
    """Two builds of the same layers: other noise, and another order of tactics. Each build is a process of its own."""
    rng = work.rng()
    problems = [problem(float(ms), rng) for ms in rng.choice(given.tactics_ms(), LAYERS)]
    first, second = (_built(work, problems, rng) for _ in range(2))
    wrong = dict.fromkeys(choice.wrong for choice in (*first, *second) if choice.wrong)
    hint = "Call both functions in the notebook with the device of the cell above: the same error appears there."
    yield replace(holds("both functions answer", not wrong, HALF, hint=hint), symptom=f"{'; '.join(wrong)}.")
    if wrong:
        return
    good = min(sum(choice.good for choice in build) for build in (first, second))
    right = min(sum(abs(choice.time_ratio - 1) <= _TIME_WITHIN for choice in build) for build in (first, second))
    agree = sum(one.tactic == other.tactic for one, other in zip(first, second, strict=True))
    hint = _timing_hint([*first, *second])
    of = f"of {LAYERS} layers"
    yield at_least("choices within 1 % of the fastest tactic, in the worse build", good, _GOOD, HALF, unit=of, hint=hint)
    yield at_least("times within 3 % of the tactic's own, in the worse build", right, _GOOD, HALF, unit=of, hint=hint)
    yield at_least("choices that both builds make", agree, _AGREE, ALL, unit=of, hint=hint)


def _built(work: TuningWork, problems: Sequence[Problem], rng: np.random.Generator) -> list[Choice]:
    """One build: the learner's functions plan the runs, the device makes them, and the functions choose."""
    file, devices = work.folder / TIMING, [Device(one.true_ms, rng) for one in problems]
    asked = [(one.listed(rng), device.budget) for one, device in zip(problems, devices, strict=True)]
    orders = call(file, {"order": asked}, work.examiner)["order"]
    wrong = [_bad_order(order, *one) for order, one in zip(orders, asked, strict=True)]
    if any(wrong):
        return [Choice(one, wrong=words) for one, words in zip(problems, wrong, strict=True)]
    runs = [[[name, device.run(name)] for name in order] for device, order in zip(devices, orders, strict=True)]
    answers = call(file, {"fastest": [(one,) for one in runs]}, work.examiner)["fastest"]
    return [_choice(*one) for one in zip(problems, orders, answers, strict=True)]


def _bad_order(order: Any, listed: Sequence[str], budget: int) -> str:
    if isinstance(order, Failed):
        return "order is not written yet" if order.empty else f"order: {order.line}"
    if not isinstance(order, list) or set(map(str, order)) != set(listed):
        return "order did not return a list in which each tactic occurs"
    return f"order returned {len(order)} runs, the budget is {budget}" if len(order) > budget else ""


def _choice(asked: Problem, order: Sequence[str], answer: Any) -> Choice:
    if isinstance(answer, Failed):
        return Choice(asked, wrong="fastest is not written yet" if answer.empty else f"fastest: {answer.line}")
    match answer:
        case [str(name), int() | float() as ms] if name in asked.true_ms and 0 < ms < np.inf:
            return Choice(asked, order, name, float(ms))
    return Choice(asked, wrong="fastest did not return the name of a tactic and its time in milliseconds")


def _timing_hint(choices: Sequence[Choice]) -> str:
    """Where to look, by what the choices have in common."""
    tactics = len(choices[0].problem.true_ms)
    if np.mean([len(choice.order) for choice in choices]) < 3 * tactics:
        return "The first run of a tactic is always too slow. How many runs of each tactic are left without it?"
    changes = [1 + sum(one != other for one, other in pairwise(choice.order)) for choice in choices]
    if np.mean(changes) <= 2.5 * tactics:
        return "Another program slows down runs in a row. Which tactics does it meet if every tactic runs once in each round?"
    if np.mean([choice.time_ratio > 1 + _TIME_WITHIN for choice in choices]) > 1 - _GOOD / LAYERS:
        return "The times are too long. Drop the first run of each tactic, and take a value that a few slow runs cannot move."
    if np.mean([choice.good for choice in choices]) < _GOOD / LAYERS:
        return "How large is your tolerance, and which value represents the runs of a tactic?"
    return "Some tactics are equally fast: noise or the order of the list decides. Which rule depends on neither?"


def builds(work: TuningWork) -> Iterator[Criterion]:
    """What the answers say about engines that were built several times in each condition."""
    found, record = work.answer("builds", BuildsAnswer), work.instance.repeated_builds()
    alone = record.pop("alone")["us"]
    ratios, intervals, verdicts = [], [], []
    for condition, row in record.items():
        us = row["us"]
        ratio = median(us) / median(alone)
        mistakes = {
            "that is the ratio of the means": np.mean(us) / np.mean(alone),
            "that is how much faster the engines are": 1 / ratio,
            "that is the ratio of two single builds": us[0] / alone[0],
        }
        ratios.append(Case((condition,), ratio, mistakes, shown=condition, tolerance=0.002))
        mistakes = {
            "the times of engines that were built alone vary, too": interval(us, [median(alone)]),
            "that is the range of all pairs": [min(us) / max(alone), max(us) / min(alone)],
        }
        intervals.append(Case((condition,), interval(us, alone), mistakes, shown=condition, tolerance=0.008))
        if condition in found.conditions:
            answer = found.conditions[condition]
            verdicts.append(Case((condition,), verdict(answer.low, answer.high), shown=condition))
    answers = [found.conditions.get(condition) for condition in record]
    hint = "Divide the median time of a condition by the median time of the engines that were built alone."
    yield _of_answers("ratios", ratios, [one and one.ratio for one in answers], HALF, hint=hint)
    hint = "Draw as many builds as there are, with replacement, on both sides, and take the middle 95 % of the ratios."
    yield _of_answers("intervals", intervals, [one and [one.low, one.high] for one in answers], hint=hint)
    hint = "A condition is as fast if all of its interval is at most 1.05, slower if all of it is above, and open otherwise."
    yield _of_answers("verdicts on these intervals", verdicts, [one.verdict for one in answers if one], hint=hint)
    chosen = cheapest(record, {name: one.verdict for name, one in found.conditions.items()})
    hint = "Of the conditions with full cores that are shown to be as fast, which one has the shortest build?"
    yield holds("the setting follows from the verdicts", found.setting == chosen, hint=hint)


def interval(us: Sequence[float], alone: Sequence[float]) -> list[float]:
    """The 95 % percentile interval of the ratio of medians, when builds are resampled on both sides."""
    rng = np.random.default_rng(0)
    drawn = (np.median(rng.choice(several, (4000, len(several))), axis=1) for several in (us, alone))
    return [float(edge) for edge in np.percentile(np.divide(*drawn), [2.5, 97.5])]


def verdict(low: float, high: float) -> Verdict:
    """What follows from the interval of a condition."""
    return "as fast" if high <= given.SLOWER else "slower" if low > given.SLOWER else "open"


def cheapest(record: Mapping[str, Any], verdicts: Mapping[str, Verdict]) -> str:
    """The shortest build among the conditions with full cores that are as fast; "" if there is none."""
    fast = [name for name, row in record.items() if row["full"] and verdicts.get(name) == "as fast"]
    return min(fast, key=lambda name: float(record[name]["seconds"]), default="")


def cache(work: TuningWork) -> Iterator[Criterion]:
    """Keys of layers, what a build measures with a cache, and how two caches become one; on a GPU, TensorRT's own cache."""
    file, (usual, variants) = work.folder / CACHE, _variants(work.rng())
    key, *others = call(file, {"key": [usual, *(other for _, _, other in variants)]}, work.examiner)["key"]
    compared = zip(variants, others, strict=True)
    wrong = dict.fromkeys(filter(None, (_complaint(words, same, key, other) for (words, same, _), other in compared)))
    hint = "Can the time of a tactic change if this field changes? Is the order of the fields fixed in your key?"
    if not all(isinstance(one, str) for one in (key, *others)):
        hint = "Call key in the notebook with the layer and the machine of the cell above: the same result appears there."
    yield replace(holds("keys of layers", not wrong, HALF, hint=hint), symptom=f"{'; '.join(wrong)}.")
    if wrong:
        return
    by_words = {words: (*one, other) for (words, _, one), other in zip(variants, others, strict=True)}
    (half, more), merges = _to_measure(*usual, key, by_words), _merges()
    asked = {"to_measure": [case.arguments for case in half + more], "merge": [case.arguments for case in merges]}
    answers = call(file, asked, work.examiner)
    hint = "An entry is found by its key, whatever the layer's name is. Is the key the same in each process?"
    yield case_criterion("builds that measure what they must", half, answers["to_measure"][: len(half)], HALF, hint=hint)
    hint = "What must hold for the tactic of an entry before a layer can use it?"
    yield case_criterion("builds whose layers offer fewer tactics", more, answers["to_measure"][len(half) :], hint=hint)
    hint = "Compare the times first. If they are equal, which rule does not ask which cache came first?"
    yield case_criterion("merged caches", merges, answers["merge"], hint=hint)
    yield from _real_cache(work)


def _variants(rng: np.random.Generator) -> tuple[Placed, list[tuple[str, bool, Placed]]]:
    """A layer with its machine; and both with one change: what it is, and whether the same times are measured."""
    sizes = [[int(size) for size in rng.integers(8, 99, count)] for count in (4, 4, 1)]
    layer: dict[str, Any] = {
        "name": "/block1/Conv",
        "operator": "Conv",
        "shapes": sizes,
        "types": ["float16", "int8", "float32"],
        "attributes": {"strides": [1, 2], "pads": [1, 1, 1, 1], "group": [1]},
        "tactics": ["gemm_128", "winograd_4"],
    }
    machine = {"device": "NVIDIA H100", "driver": f"580.{rng.integers(10, 99)}", "tensorrt": "10.16.1", "host": "farm-3"}
    place, attributes = int(rng.integers(4)), layer["attributes"]
    larger = [size + (index == place) for index, size in enumerate(sizes[0])]
    layers: list[tuple[str, bool, dict[str, Any]]] = [
        ("the name of the layer differs", True, layer | {"name": "/head/Conv"}),
        ("the layer offers one tactic less", True, layer | {"tactics": ["gemm_128"]}),
        ("the fields have another order", True, dict(reversed(layer.items()))),
        ("the attributes have another order", True, layer | {"attributes": dict(reversed(attributes.items()))}),
        ("the operator differs", False, layer | {"operator": "ConvTranspose"}),
        ("one size of an input differs", False, layer | {"shapes": [larger, *sizes[1:]]}),
        ("two inputs are exchanged", False, layer | {"shapes": [sizes[1], sizes[0], sizes[2]]}),
        ("the type of an input differs", False, layer | {"types": ["float16", "float16", "float32"]}),
        ("an attribute differs", False, layer | {"attributes": attributes | {"strides": [2, 1]}}),
        ("an attribute is added", False, layer | {"attributes": attributes | {"dilations": [2, 2]}}),
    ]
    machines = [
        ("the host differs", True, machine | {"host": "farm-4"}),
        ("the GPU differs", False, machine | {"device": "NVIDIA H200"}),
        ("the driver differs", False, machine | {"driver": machine["driver"] + ".1"}),
        ("the version of TensorRT differs", False, machine | {"tensorrt": "10.16.2"}),
    ]
    return (layer, machine), [
        *((words, same, (other, machine)) for words, same, other in layers),
        *((words, same, (layer, other)) for words, same, other in machines),
    ]


def _complaint(words: str, same: bool, one: Any, other: Any) -> str:
    """What is wrong with two keys, or ""."""
    for key in (one, other):
        if isinstance(key, Failed):
            return "key is not written yet" if key.empty else f"key: {key.line}"
        if not isinstance(key, str):
            return "key did not return a text"
    if (one == other) == same:
        return ""
    return f"{words}, and the keys {'differ' if same else 'are the same'}"


def _to_measure(layer: Any, machine: Any, key: Any, variants: Mapping[str, Sequence[Any]]) -> tuple[list[Case], list[Case]]:
    """Builds for half of the points, and for all of them, with the positions of the layers that must be measured."""
    other, _, key_of_other = variants["the operator differs"]
    again, fewer = (variants[f"the {what}"][0] for what in ("name of the layer differs", "layer offers one tactic less"))
    foreign = variants["the driver differs"][2]
    known = {key: ["winograd_4", 0.02]}
    twice, unused = "equal layers of a build are measured twice", "the entry of an equal layer is not used"
    gone, usable = "the layer does not offer the tactic of the entry", "one of the layers can use the entry"
    half = [
        Case(([layer, other, again], machine, {}), [0, 1], {twice: [0, 1, 2]}, shown="an empty cache"),
        Case(([again, other], machine, known), [1], {unused: [0, 1]}, shown="a cache with one of two layers"),
        Case(([other, layer], machine, known | {key_of_other: ["gemm_128", 0.05]}), [], shown="a cache with all layers"),
        Case(([layer], machine, {foreign: ["winograd_4", 0.02]}), [0], shown="a cache of another driver"),
    ]
    more = [
        Case(([fewer], machine, known), [0], {gone: []}, shown="a tactic that is gone"),
        Case(([layer, fewer], machine, known), [1], {gone: [], usable: [0, 1]}, shown="a tactic that one of two layers offers"),
    ]
    return half, more


def _merges() -> list[Case]:
    """Caches in both orders, and what they become."""
    slow, fast, tie = ["a", 0.2], ["b", 0.1], ["a", 0.1]
    rows: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
        ("two layers", {"k": slow}, {"m": fast}, {"k": slow, "m": fast}, {}),
        ("one layer in both", {"k": slow}, {"k": fast}, {"k": fast}, {"the slower entry is kept": {"k": slow}}),
        ("equal times", {"k": fast}, {"k": tie}, {"k": tie}, {"the order of the caches decides": {"k": fast}}),
    ]
    cases = [Case((one, two), merged, mistakes, shown=name) for name, one, two, merged, mistakes in rows]
    turned = [Case((two, one), merged, mistakes, shown=f"{name}, exchanged") for name, one, two, merged, mistakes in rows]
    return cases + turned


def _real_cache(work: TuningWork) -> Iterator[Criterion]:
    """On a GPU, builds with the settings of the learner's recipe: one fills TensorRT's timing cache, and two read it."""
    examiner = work.examiner
    if split_target(examiner.builder)[0] != "tensorrt" or not examiner.on_gpu:
        return
    folder, model = work.scratch / "timings", work.scratch / "classifier.onnx"
    folder.mkdir()
    classifier, recipe = given.cache_build(submitted_recipe(work.folder))
    model.write_bytes(classifier.SerializeToString())
    with_cache = replace(examiner, launcher=lambda command: ["env", f"{FOLDER_VARIABLE}={folder}", *command])
    first, second, third = (with_cache.build(model, recipe) for _ in range(3))
    hint = "Which optimization level ignores the timing cache, and which flag disables it?"
    share = max(second.build_seconds, third.build_seconds) / first.build_seconds
    yield at_most("time of a rebuild from TensorRT's timing cache", share, _REBUILD_SHARE, unit="x", hint=hint)
    tactics = [[kernel.tactic for kernel in plan.layers.kernels] for plan in (second, third)]
    yield holds("two rebuilds have the same tactics", tactics[0] == tactics[1], hint=hint)
