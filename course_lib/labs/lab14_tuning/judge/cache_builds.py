"""The builds of task 4: secret layers and machines, measurements that are counted, and a learner's process that can restart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from course_lib.labs.framework.guest import Denied, Failed, Guest, PathIn

Layer = dict[str, Any]
Machine = dict[str, str]
FILE = PathIn("timing.cache")
_OPERATORS = ("Conv", "MatMul", "MaxPool")


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
    ms: Mapping[str, float]  # by tactic
    measured: list[str] = field(default_factory=list)

    def measure(self, layer: Any) -> list[Any]:
        """The fastest tactic of a layer and its milliseconds.

        Raises:
            Denied: it is not a layer of the build.
        """
        mine = next((one for one in self.layers if one == layer), None)
        if mine is None:
            raise Denied("measure was called with something else than a layer of the build")
        self.measured.append(mine["name"])
        return self.answer(mine)

    def answer(self, layer: Layer) -> list[Any]:
        """What `measure` returns for a layer."""
        best = min(layer["tactics"], key=lambda name: self.ms[name])
        return [best, self.ms[best]]

    def run(self, stage: Stage, cache: Any) -> tuple[list[str], dict[str, Any]]:
        """The choices of the learner's `tuned`, and its cache.

        Raises:
            Wrong: it failed, or returned something else.
        """
        self.measured.clear()
        answer = called(stage, "tuned", self.layers, self.machine, cache, self.measure)
        if not isinstance(answer, list) or len(answer) != 2 or not isinstance(answer[0], list) or not is_cache(answer[1]):
            raise Wrong("tuned did not return (names, cache)", "The cache is a dictionary from key to (tactic, ms).")
        return answer[0], answer[1]


def called(stage: Stage, function: str, *arguments: Any) -> Any:
    """The result of a call that must not raise.

    Raises:
        Wrong: it raised.
    """
    answer = stage.learner.call(function, *arguments)
    if isinstance(answer, Failed):
        raise Wrong(
            f"{function} failed: {answer.line}", "Call it in the notebook: the same error appears there.", empty=answer.empty
        )
    return answer


class Stage:
    """The learner's process of a scene. After a restart, only what is in the file is left, as on a real machine."""

    def __init__(self, start: Callable[..., AbstractContextManager[Guest]], stack: ExitStack) -> None:
        self._start, self._stack = start, stack
        self.learner = stack.enter_context(start())

    def restart(self, disk_bytes: int | None = None) -> None:
        """End the process, and begin another one with the same file. On a disk that is full, no file grows beyond `disk_bytes`."""
        content = self.learner.content(FILE)
        self.learner = self._stack.enter_context(self._start(files={FILE: content}, disk_bytes=disk_bytes))


class Network:
    """Secret layers, machines and times."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.machine = {
            "device": f"GPU {rng.integers(100, 900)}",
            "driver": f"{rng.integers(500, 600)}.{rng.integers(10, 99)}",
            "tensorrt": f"10.{rng.integers(0, 16)}.{rng.integers(0, 9)}",
            "host": f"node-{rng.integers(0, 99)}",
        }
        self.ms: dict[str, float] = {}
        distinct = [self._layer(index) for index in range(5)]
        twins = [dict(distinct[index], name=f"layer_{5 + index}") for index in (0, 0, 3)]
        self.layers = [*distinct, *twins]
        self.signatures = len(distinct)

    def _layer(self, index: int) -> Layer:
        tactics = [f"tactic_{number:08x}" for number in self.rng.integers(0, 1 << 32, 4)]
        self.ms |= {name: round(float(self.rng.uniform(0.01, 0.2)), 5) for name in tactics}
        channels = int(self.rng.integers(1, 16)) * 8 + index  # so that no two layers are alike
        return {
            "name": f"layer_{index}",
            "operator": str(self.rng.choice(_OPERATORS)),
            "shapes": [[8, channels, 28, 28], [8, 64, 28, 28]],
            "types": ["FP16", "FP16"],
            "attributes": {"kernel": [3, 3], "stride": [1, 1]},
            "tactics": tactics,
        }

    def build(self, layers: Sequence[Layer] | None = None, machine: Machine | None = None) -> Builder:
        """A build of these layers, or of others, on this machine or on another one."""
        return Builder(layers or self.layers, machine or self.machine, self.ms)


def is_cache(value: Any) -> bool:
    """Whether a value has the form of a cache: pairs of a text and a number by key."""
    return isinstance(value, dict) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) in (int, float)
        for entry in value.values()
    )
