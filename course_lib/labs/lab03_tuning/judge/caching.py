"""Task 4: scenes in which a timing cache is used, changed, merged, saved and damaged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Failed, started
from course_lib.labs.lab03_tuning.judge.cache_builds import (
    FILE,
    Layer,
    Machine,
    Network,
    Stage,
    Wrong,
    called,
    is_cache,
    same_times,
)

_UNCHANGED = 16  # builds without a change, among those with one


@dataclass(frozen=True)
class Found:
    """The result of one scene: why it failed, or ""."""

    name: str
    needed_for_half: bool
    said: str = ""
    hint: str = ""
    empty: bool = False


def _second_build(stage: Stage, drawn: Network) -> None:
    build = drawn.build()
    names, cache = build.run(stage, {})
    wanted = [build.answer(layer)[0] for layer in build.layers]
    for field, layer in drawn.changed.items():
        if build.measured and not any(same_times(layer, one) for one in build.measured):
            raise _used(field, layer[field], drawn.base[field])
    if len(build.measured) != len(drawn.distinct):
        raise Wrong(
            f"The first build measured {len(build.measured)} layers, and {len(drawn.distinct)} of its {len(build.layers)} layers differ",
            "Equal layers share a key. Which fields of a layer have no influence on its time, and when do you add an entry?",
        )
    if names != wanted:
        raise Wrong("The first build has other tactics than `measure` returned", "Which name belongs to which layer?")
    build.run(stage, {})
    if len(build.measured) != len(drawn.distinct):
        raise Wrong(
            "A build with an empty cache did not measure again",
            "Keep entries in the cache alone, and not in a global variable.",
        )
    again, _ = build.run(stage, cache)
    if build.measured:
        raise Wrong(f"The second build measured {len(build.measured)} layers", "Look a layer up before you measure it.")
    if again != wanted:
        raise Wrong("The second build has other tactics than the first", "An entry holds the tactic of its own key.")


def _used(field: str, found: Any, kept: Any) -> Wrong:
    return Wrong(
        f"An entry was used although {field} differs: {found} instead of {kept}",
        "Two keys must differ if the times may differ. Which fields are in your key, and which parts of them?",
    )


def _other_names(stage: Stage, drawn: Network) -> None:
    _, cache = drawn.build().run(stage, {})
    build = drawn.build([drawn.disguised_layer(layer) for layer in drawn.layers], drawn.disguised_machine(drawn.machine))
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            "Equal layers with other names and one tactic less, on another host with the same GPU and versions, were measured again",
            "Which fields of layer and machine have no influence on a time? Is their order fixed in your key, also inside of `attributes`?",
        )


def _what_a_time_depends_on(stage: Stage, drawn: Network) -> None:
    """Builds with one change, and others without a change, in secret order. Only what a time depends on tells them apart."""
    layer, *others = (drawn.drawn_layer() for _ in range(3))
    _, cache = drawn.build([layer, *others]).run(stage, {})
    cases: list[tuple[str, Layer, Machine]] = [(field, other, drawn.machine) for field, other in drawn.changed_layers(layer)]
    cases += [(field, layer, other) for field, other in drawn.changed_machines()]
    cases += [("", layer, drawn.machine)] * _UNCHANGED
    found: dict[int, Wrong] = {}
    for place in map(int, drawn.rng.permutation(len(cases))):
        field, other, machine = cases[place]
        several = [other, *(one for one in others if drawn.rng.random() < 0.5)]
        in_order = [several[index] for index in drawn.rng.permutation(len(several))]
        disguised = [drawn.disguised_layer(one, layer if one is other else one) for one in in_order]
        build = drawn.build(disguised, drawn.disguised_machine(machine))
        expected = [field in machine or (one is other and field != "") for one in in_order]
        try:
            names, _ = build.run(stage, cache)
            measured = [one in build.measured for one in build.layers]
            if any(needed and not done for needed, done in zip(expected, measured, strict=True)):
                values = (machine[field], drawn.machine[field]) if field in machine else (other[field], layer[field])
                raise _used(field, *values)
            if len(build.measured) != sum(expected):
                raise Wrong(
                    "A layer that had not changed was measured again",
                    "Does your key depend on something that does not change a time, or is an entry measured that is usable?",
                )
            if names != [build.answer(one)[0] for one in build.layers]:
                raise Wrong("A build has other tactics than `measure` returned", "An entry holds the tactic of its own key.")
        except Wrong as wrong:
            found[place] = wrong
    if found:
        raise found[min(found)]
    kept = called(stage, "key", layer, drawn.machine)
    for field, other, machine in cases:
        answer = called(stage, "key", drawn.disguised_layer(other), drawn.disguised_machine(machine))
        if not isinstance(answer, str) or (answer == kept) != (field == ""):
            raise Wrong(
                f"key did not return {'another' if field else 'the same'} text for {f'another {field}' if field else 'the same times'}",
                "Use `key` in `tuned`, so that both follow the same rule.",
            )


def _tactic_is_gone(stage: Stage, drawn: Network) -> None:
    _, cache = drawn.build().run(stage, {})
    layer = drawn.layers[1]
    best = drawn.fastest(layer)
    fewer = layer | {"tactics": [name for name in layer["tactics"] if name != best]}
    build = drawn.build([fewer])
    names, cache = build.run(stage, cache)
    if names != [build.answer(fewer)[0]]:
        raise Wrong(
            "An entry's tactic was used although the builder no longer offers it",
            "A smaller workspace excludes tactics. What must hold for the tactic of an entry before you use it?",
        )
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            "An entry whose tactic is gone was measured, and the result was not kept",
            "Which entry must the new measurement replace?",
        )


def _merge(stage: Stage, drawn: Network) -> None:
    rng = drawn.rng
    keys, tactics = _texts(rng, 14), sorted(_texts(rng, 3))
    caches = [
        {keys[place]: [tactics[rng.integers(3)], float(rng.integers(1, 4)) / 100] for place in rng.choice(12, 8, False)}
        for _ in range(3)
    ]
    one, two, three = caches
    for tie, entries in zip(keys[12:], (tactics[:2], tactics[1::-1]), strict=True):  # each cache has the right entry once
        one[tie], two[tie] = [entries[0], 0.01], [entries[1], 0.01]

    def merged(first: Any, second: Any) -> dict[str, Any]:
        found = called(stage, "merge", first, second)
        if not is_cache(found):
            raise Wrong("merge did not return a cache", "A cache is a dictionary from key to (tactic, ms).")
        return _plain(found)

    both = merged(one, two)
    if missing := [key for key in {**one, **two} if key not in both]:
        raise Wrong(f"merge lost {len(missing)} of {len({**one, **two})} keys", "A key that only one cache has must be kept.")
    if both != merged(two, one):
        raise Wrong(
            "merge(a, b) and merge(b, a) differ",
            "Both caches may have a key, and even the same ms with two tactics. The rule must not ask which cache came first.",
        )
    if both != _plain(_smaller(one, two)):
        raise Wrong(
            "Of two entries for a key, merge kept another one than requirement 6 says", "Compare ms first, and then the names."
        )
    if merged(both, three) != merged(one, merged(two, three)):
        raise Wrong(
            "The result for three caches depends on which two are merged first",
            "Keep one whole entry, and change nothing in it.",
        )


def _smaller(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    both = [(key, entry) for cache in (one, two) for key, entry in cache.items()]
    found: dict[str, Any] = {}
    for key, entry in both:
        if key not in found or (entry[1], entry[0]) < (found[key][1], found[key][0]):
            found[key] = entry
    return found


def _through_a_file(stage: Stage, drawn: Network) -> None:
    if called(stage, "load", FILE) != {}:
        raise Wrong("load of a missing file did not return an empty cache", "The first build on a machine has no file.")
    _, cache = drawn.build().run(stage, {})
    called(stage, "save", cache, FILE)
    if not stage.learner.exists(FILE):
        raise Wrong("save did not write the file", "Write to the path that `save` receives.")
    stage.restart()
    loaded = called(stage, "load", FILE)
    build = drawn.build()
    build.run(stage, loaded)
    if not is_cache(loaded) or build.measured:
        raise Wrong("A build with the saved and loaded cache measured again", "What does json make of your keys and entries?")


def _two_builds_save(stage: Stage, drawn: Network) -> None:
    """Two processes load the file, then save in turn: the other one has written since, and neither has seen what it wrote."""
    called(stage, "save", drawn.build(drawn.distinct[:1]).run(stage, {})[1], FILE)
    stage.restart()
    other = stage.another()
    caches = [
        drawn.build(drawn.distinct[place : place + 1]).run(one, called(one, "load", FILE))[1]
        for place, one in ((1, stage), (2, other), (3, stage), (4, other))
    ]
    for one, before, cache in zip((stage, other, stage, other), (other, stage, other, stage), caches, strict=True):
        one.receive(before)
        called(one, "save", cache, FILE)
    stage.receive(other)
    stage.restart()
    build = drawn.build()
    build.run(stage, called(stage, "load", FILE))
    if build.measured:
        raise Wrong(
            "Two builds loaded the file, then both saved: entries of one of them are lost",
            "The file may have changed since you loaded it. What should `save` do with the entries that it holds now?",
        )


def _disk_is_full(stage: Stage, drawn: Network) -> None:
    before, more = (
        _entries(drawn.rng, 39),
        _entries(drawn.rng, 400),
    )  # what is drawn for 39 does not fit into 512 bytes in any form
    called(stage, "save", before, FILE)
    stage.restart(disk_bytes=512)
    stage.learner.call("save", more, FILE)  # may raise
    stage.restart()
    if lost := _lost(before, _loaded(stage)):
        raise Wrong(
            f"The disk was full while `save` wrote: {lost} of {len(before)} entries of the file are lost",
            "When is the old content gone, if you open the file for writing? Which call replaces a file in one step?",
        )
    stage.restart()  # the process that saves has not called `load`
    called(stage, "save", more, FILE)
    stage.restart()
    if _lost(before | more, _loaded(stage)):
        raise Wrong("After a failed `save`, the next one does not work", "What does the failed `save` leave in the folder?")


def _lost(entries: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    return sum(found.get(key) != entry for key, entry in entries.items())


def _texts(rng: np.random.Generator, count: int) -> list[str]:
    return [rng.bytes(16).hex() for _ in range(count)]


def _entries(rng: np.random.Generator, count: int) -> dict[str, Any]:
    tactics = (f"tactic_{number:08x}" for number in rng.integers(0, 1 << 32, count))
    return {key: [tactic, _ms(rng)] for key, tactic in zip(_texts(rng, count), tactics, strict=True)}


def _ms(rng: np.random.Generator) -> float:
    return round(float(rng.uniform(0.01, 1)), 5)


def _damaged(rng: np.random.Generator, content: str) -> Iterator[tuple[str, bytes | str]]:
    """What a damaged file holds, as bytes or in base64, by the kind of damage.

    Args:
        content: a whole file, in base64.
    """
    # Within the first half, because the last part of a database can hold an index without which all entries are still there.
    yield "cut off", content[: 4 * int(rng.integers(1, max(2, len(content) // 8)))]
    # No text begins like this, nor does anything that pickle reads.
    yield "no text", bytes([rng.integers(0xF8, 0x100)]) + rng.bytes(int(rng.integers(20, 200)))
    plain = (None, True, _ms(rng), *_texts(rng, 1))
    yield "no dictionary", json.dumps(plain[rng.integers(len(plain))]).encode()
    yield "a list", json.dumps(rng.integers(0, 1 << 20, int(rng.integers(1, 9))).tolist()).encode()
    changes: dict[str, Callable[[list[Any]], Any]] = {
        "a number": lambda entry: entry[1],
        "one part": lambda entry: entry[:1],
        "three parts": lambda entry: [*entry, entry[1]],
        "a number as tactic": lambda entry: [int(rng.integers(1 << 20)), entry[1]],
        "a text as time": lambda entry: [entry[0], str(entry[1])],
    }
    for what, change in changes.items():
        entries = _entries(rng, int(rng.integers(5, 40)))
        place = str(rng.choice(list(entries)))
        for which, keys in (("each entry", [*entries]), ("one entry", [place])):
            yield f"{which}: {what}", json.dumps(entries | {key: change(entries[key]) for key in keys}).encode()


def _file_is_damaged(stage: Stage, drawn: Network) -> None:
    _, cache = drawn.build().run(stage, {})
    called(stage, "save", cache, FILE)
    for what, content in _damaged(drawn.rng, stage.learner.content(FILE) or ""):
        stage.learner.place(FILE, content if isinstance(content, str) else base64.b64encode(content).decode())
        stage.restart()
        if isinstance(answer := stage.learner.call("load", FILE), Failed):
            raise Wrong(
                f"load of a damaged file ({what}) failed: {answer.line}",
                "A damaged file costs time, and no build. Which errors can reading raise?",
            )
        if answer != {}:
            raise Wrong(
                f"load of a damaged file ({what}) did not return an empty cache",
                "JSON can be valid and still not be a cache: every entry must be a pair of a text and a number.",
            )
    build = drawn.build()
    names, cache = build.run(stage, _loaded(stage))
    if names != [build.answer(layer)[0] for layer in build.layers]:
        raise Wrong("A build with a damaged file has other tactics", "A damaged file is as good as no file.")
    called(stage, "save", cache, FILE)
    stage.restart()
    if len(_loaded(stage)) < len(drawn.distinct):
        raise Wrong("save did not replace a damaged file", "`save` reads the file too. What if it cannot?")


def _loaded(stage: Stage) -> dict[str, Any]:
    found = called(stage, "load", FILE)
    if not is_cache(found):
        raise Wrong("load did not return a cache", "A cache is a dictionary from key to (tactic, ms).")
    return dict(found)


def _plain(cache: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(cache))


Scene = Callable[[Stage, Network], None]
_SCENES: Sequence[tuple[str, Scene, bool]] = (
    ("a second build measures nothing", _second_build, True),
    ("names and hosts do not matter", _other_names, True),
    ("another machine or layer is measured, and no other one", _what_a_time_depends_on, True),
    ("a tactic that is gone is not used", _tactic_is_gone, True),
    ("two caches are merged in any order", _merge, False),
    ("a file keeps the cache", _through_a_file, False),
    ("two builds save to one file", _two_builds_save, False),
    ("a full disk loses nothing", _disk_is_full, False),
    ("a damaged file counts as missing", _file_is_damaged, False),
)


def played(source: Path, rng: np.random.Generator, launcher: Launcher | None) -> list[Found]:
    """All scenes, each in its own process with its own folder.

    Raises:
        EngineError: the file fails as a whole, or its process does.
    """
    found = []
    for name, scene, half in _SCENES:
        with ExitStack() as stack:
            stage = Stage(partial(started, source, launcher), stack)
            try:
                scene(stage, network := Network(rng))
                if network.mistakes:
                    raise network.mistakes[0]
                found.append(Found(name, half))
            except Wrong as wrong:
                found.append(Found(name, half, str(wrong), wrong.hint, wrong.empty))
                if wrong.empty and len(found) == 1:
                    break
    return found


def criteria(found: Sequence[Found]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    full = [Criterion(one.name, "no" if one.said else "yes", "yes", not one.said) for one in found]
    pairs = zip(full, found, strict=True)
    half = [Criterion(row.name, row.found, row.bound, row.met, HALF) for row, one in pairs if one.needed_for_half]
    return full, half
