"""The builds of task 4: secret layers and machines, measurements that are counted, and a learner's process that can restart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from course_lib.labs.framework.guest import Denied, Failed, Guest, PathIn
from course_lib.labs.lab03_tuning.judge.differing import (
    LETTERS,
    MOST_ATTRIBUTES,
    MOST_INPUTS,
    MOST_NUMBERS,
    OF_LAYER,
    Layer,
    Machine,
    number,
    tactics,
    word,
)
from course_lib.labs.lab03_tuning.judge.words import first_difference, hint_after

_KINDS = {list: "a list", dict: "a dictionary", str: "a text", int: "a number", float: "a number", type(None): "None"}
_DISTINCT, _TWINS = 5, 3  # layers of a network, and those that it has twice
FILE = PathIn("timing.cache")
# All files that a process can have. Most scenes use the first one alone.
FILES = (FILE, PathIn("second.cache"), PathIn("third.cache"))


class Wrong(Exception):
    """What a scene found, in words, with a hint."""

    def __init__(self, said: str, hint: str, *, empty: bool = False) -> None:
        super().__init__(said)
        self.hint, self.empty = hint, empty


@dataclass
class Builder:
    """One build: its layers, its machine, and a device whose measurements are counted."""

    layers: Sequence[Layer]
    machine: Machine
    ms: Callable[[Layer, str], float]  # of a layer's tactic
    measured: list[Layer] = field(default_factory=list)
    mistakes: list[Wrong] = field(default_factory=list)  # in the entries of caches that `tuned` returned

    def measure(self, layer: Any) -> list[Any]:
        """The fastest tactic of a layer and its milliseconds.

        Raises:
            Denied: it is not a layer of the build.
        """
        mine = next((one for one in self.layers if one == layer), None)
        if mine is None:
            raise Denied("measure was called with something else than a layer of the build")
        self.measured.append(mine)
        return self.answer(mine)

    def answer(self, layer: Layer) -> list[Any]:
        """What `measure` returns for a layer."""
        best = min(layer["tactics"], key=lambda name: self.ms(layer, name))
        return [best, self.ms(layer, best)]

    def run(self, stage: Stage, cache: Any) -> tuple[list[str], dict[str, Any]]:
        """The choices of the learner's `tuned`, and its cache.

        Raises:
            Wrong: it failed, or returned something else.
        """
        self.measured.clear()
        answer = called(stage, "tuned", self.layers, self.machine, cache, self.measure)
        if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[0], list) or not is_cache(answer[1]):
            raise Wrong(
                f"tuned did not return (names, cache), but {_kind(answer)}",
                "The cache is a dictionary from key to (tactic, ms).",
            )
        if is_cache(cache):
            self._compare(cache, answer[1])
        return answer[0], answer[1]

    def _compare(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        results = [self.answer(layer) for layer in self.measured]
        changed = [key for key, entry in before.items() if after.get(key) != entry and after.get(key) not in results]
        if changed:
            first = changed[0]
            how = first_difference("entry", after[first], before[first]) if first in after else "one is missing"
            self.mistakes.append(
                Wrong(
                    f"After a build, {len(changed)} of {len(before)} old entries of its cache were lost or changed: {how}",
                    "The cache also serves other networks. Which entries may a build replace?",
                )
            )
        new = [entry for key, entry in after.items() if before.get(key) != entry]
        wrong = [_how(entry, results) for entry in new if entry not in results]
        # Of several results, one can replace another if a key says too little. That is not a wrong entry.
        if len(results) == 1 and results[0] not in after.values():
            wrong.append("the result is not in the cache")
        if wrong:
            self.mistakes.append(
                Wrong(
                    f"After a build, the new entries of its cache differ from the results of `measure`: {wrong[0]}",
                    "An entry is the pair (tactic, ms) that `measure` returned. What becomes of its ms?",
                )
            )


def _kind(answer: Any) -> str:
    if isinstance(answer, list) and 0 < len(answer) < 5:
        return f"({', '.join(_KINDS.get(type(one), 'something else') for one in answer)})"
    return _KINDS.get(type(answer), "something else")


def _how(entry: list[Any], results: Sequence[list[Any]]) -> str:
    """How an entry differs from the result that it was probably made of."""
    if not results:
        return "an entry was added without a measurement"
    return first_difference("entry", entry, next((one for one in results if one[0] == entry[0]), results[0]))


def called(stage: Stage, function: str, *arguments: Any) -> Any:
    """The result of a call that must not raise.

    Raises:
        Wrong: it raised.
    """
    answer = stage.learner.call(function, *arguments)
    if isinstance(answer, Failed):
        usual = "Does this line work for each layer, cache and file that the task describes?"
        raise Wrong(f"{function} failed: {answer.line}", hint_after(answer.line, usual), empty=answer.empty)
    return answer


class Stage:
    """The learner's process of a scene. After a restart, only what is in its files is left, as on a real machine."""

    def __init__(self, start: Callable[..., AbstractContextManager[Guest]], stack: ExitStack) -> None:
        self._start, self._stack = start, stack
        self._running = stack.enter_context(ExitStack())
        self.learner = self._running.enter_context(start())

    def restart(self, disk_bytes: int | None = None) -> None:
        """End the process, then begin another one with the same files. On a disk that is full, none grows beyond `disk_bytes`."""
        files = {file: self.learner.content(file) for file in FILES}
        self._running.close()
        self.learner = self._running.enter_context(self._start(files=files, disk_bytes=disk_bytes))

    def another(self) -> Stage:
        """A second process that runs beside this one, with a copy of the file."""
        content = self.learner.content(FILE)
        return Stage(partial(self._start, files={FILE: content}), self._stack)

    def receive(self, other: Stage) -> None:
        """Replace the file by that of another process, as if both used one file."""
        self.learner.place(FILE, other.learner.content(FILE))


class Network:
    """Secret layers, machines and times.

    Attributes:
        distinct: layers without anything in common but their tactics, so that a key that omits a field tells them apart.
        layers: these, and some of them twice, in any order.
        mistakes: in the entries of all builds so far.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.mistakes: list[Wrong] = []
        self.machine = {
            "device": f"NVIDIA {rng.choice(list(LETTERS))}{rng.integers(100, 900)} {rng.integers(16, 200)}GB HBM{rng.integers(2, 9)}",
            "driver": f"{rng.integers(500, 600)}.{rng.integers(10, 99)}",
            "tensorrt": f"10.{rng.integers(0, 16)}.{rng.integers(1, 9)}.{rng.integers(11, 99)}",
            "host": f"node-{rng.integers(0, 99)}",
        }
        self.tactics = tactics(rng, 4)
        self._times: dict[str, dict[str, float]] = {}
        self.distinct = [self.drawn_layer() for _ in range(_DISTINCT)]
        twice = [*self.distinct, *(self.distinct[place] for place in rng.integers(0, _DISTINCT, _TWINS))]
        self.layers = [twice[place] for place in rng.permutation(len(twice))]

    def ms(self, layer: Layer, tactic: str) -> float:
        """The time of a tactic for a layer. All times of a layer differ, and are whole numbers for half of the layers."""
        if (work := signature(layer)) not in self._times:
            whole = self.rng.random() < 0.5
            count = len(self.tactics)
            times = self.rng.permutation(999)[:count] + 1 if whole else self.rng.uniform(0.01, 0.2, count)
            self._times[work] = dict(zip(self.tactics, times.tolist(), strict=True))
        return self._times[work][tactic]

    def fastest(self, layer: Layer) -> str:
        """The tactic of a layer with the least time."""
        return str(min(layer["tactics"], key=lambda name: self.ms(layer, name)))

    def drawn_layer(self, *, wide: bool = False) -> Layer:
        """A layer whose numbers and names are all drawn. A wide one has as many of them as the task allows."""

        def count(least: int, most: int) -> range:
            return range(most if wide else int(self.rng.integers(least, most + 1)))

        def numbers() -> list[int]:
            return [number(self.rng) for _ in count(1, MOST_NUMBERS)]

        inputs = count(1, MOST_INPUTS)
        return {
            "name": self._name(),
            "operator": word(self.rng),
            "shapes": [numbers() for _ in inputs],
            "types": [word(self.rng) for _ in inputs],
            "attributes": {word(self.rng): numbers() for _ in count(0, MOST_ATTRIBUTES)},
            "tactics": self.tactics,
        }

    def disguised_layer(self, layer: Layer, like: Layer | None = None) -> Layer:
        """The same layer with another name, other orders, and one tactic less: nothing that its times depend on.

        Args:
            like: its fastest tactic is kept, too, so that an entry for this layer seems to be usable.
        """
        kept = {self.fastest(layer), self.fastest(like or layer)}
        dropped = self.rng.choice([name for name in layer["tactics"] if name not in kept])
        return {name: layer[name] for name in reversed(layer)} | {
            "name": self._name(),
            "attributes": dict(reversed(layer["attributes"].items())),
            "tactics": [str(name) for name in self.rng.permutation(layer["tactics"]) if name != dropped],
        }

    def disguised_machine(self, machine: Machine) -> Machine:
        """Another host with the same GPU and versions."""
        return {name: machine[name] for name in reversed(machine)} | {"host": self._name()}

    def _name(self) -> str:
        return f"node_{self.rng.integers(1 << 30)}"

    def build(self, layers: Sequence[Layer] | None = None, machine: Machine | None = None) -> Builder:
        """A build of these layers, or of others, on this machine or on another one."""
        return Builder(layers or self.layers, machine or self.machine, self.ms, mistakes=self.mistakes)


def same_times(one: Layer, two: Layer) -> bool:
    """Whether the times of two layers are the same on each machine."""
    return signature(one) == signature(two)


def signature(layer: Layer) -> str:
    """What the times of a layer depend on, as a text."""
    return json.dumps([layer[name] for name in OF_LAYER], sort_keys=True)


def is_cache(value: Any) -> bool:
    """Whether a value has the form of a cache: pairs of a text and a number by key."""
    return isinstance(value, dict) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) in (int, float)
        for entry in value.values()
    )
