"""Task 4: scenes in which a timing cache is used, changed, merged, saved and damaged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Failed, started
from course_lib.labs.lab03_tuning.judge.cache_builds import FILE, Network, Stage, Wrong, called, is_cache


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
    if names != wanted:
        raise Wrong("The first build has other tactics than `measure` returned", "Which name belongs to which layer?")
    if len(build.measured) != drawn.signatures:
        raise Wrong(
            f"The first build measured {len(build.measured)} layers, and {drawn.signatures} of its {len(build.layers)} layers differ",
            "Equal layers share a key. Which fields of a layer have no influence on its time, and when do you add an entry?",
        )
    build.run(stage, {})
    if len(build.measured) != drawn.signatures:
        raise Wrong(
            "A build with an empty cache did not measure again",
            "Keep entries in the cache alone, and not in a global variable.",
        )
    again, _ = build.run(stage, cache)
    if build.measured:
        raise Wrong(f"The second build measured {len(build.measured)} layers", "Look a layer up before you measure it.")
    if again != wanted:
        raise Wrong("The second build has other tactics than the first", "An entry holds the tactic of its own key.")


def _other_names(stage: Stage, drawn: Network) -> None:
    _, cache = drawn.build().run(stage, {})
    renamed = [
        {field: layer[field] for field in reversed(layer)}
        | {"name": f"r_{layer['name']}", "attributes": dict(reversed(layer["attributes"].items()))}
        | {"tactics": sorted(layer["tactics"], key=drawn.ms.__getitem__)[:-1]}
        for layer in drawn.layers
    ]
    elsewhere = {name: drawn.machine[name] for name in reversed(drawn.machine)} | {"host": "another"}
    build = drawn.build(renamed, elsewhere)
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            "Equal layers with other names and one tactic less, on another host with the same GPU and versions, were measured again",
            "Which fields of layer and machine have no influence on a time? Is their order fixed in your key, also inside of `attributes`?",
        )


def _what_a_time_depends_on(stage: Stage, drawn: Network) -> None:
    layer = drawn.varied_layer()
    _, cache = drawn.build([layer]).run(stage, {})
    layers = ((field, other, drawn.machine) for field, other in drawn.changed_layers(layer))
    machines = ((field, layer, other) for field, other in drawn.changed_machines())
    for field, other, machine in (*layers, *machines):
        build = drawn.build([other], machine)
        build.run(stage, cache)
        if not build.measured:
            values = (other[field], layer[field]) if field in layer else (machine[field], drawn.machine[field])
            raise Wrong(
                f"An entry was used although {field} differs: {values[0]} instead of {values[1]}",
                "Two keys must differ if the times may differ. Which fields are in your key, and which parts of them?",
            )


def _tactic_is_gone(stage: Stage, drawn: Network) -> None:
    _, cache = drawn.build().run(stage, {})
    layer = drawn.layers[1]
    best = drawn.build().answer(layer)[0]
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
    caches = [
        {
            f"key {number}": [f"tactic_{rng.integers(0, 3)}", float(rng.integers(1, 4)) / 100]
            for number in rng.choice(12, 8, False)
        }
        for _ in range(3)
    ]
    one, two, three = caches
    one |= {"tie 1": ["tactic_0", 0.01], "tie 2": ["tactic_1", 0.01]}  # each cache has the right entry once
    two |= {"tie 1": ["tactic_1", 0.01], "tie 2": ["tactic_0", 0.01]}

    def merged(first: Any, second: Any) -> dict[str, Any]:
        found = called(stage, "merge", first, second)
        if not is_cache(found):
            raise Wrong("merge did not return a cache", "A cache is a dictionary from key to (tactic, ms).")
        return _plain(found)

    if missing := [key for key in {**one, **two} if key not in merged(one, two)]:
        raise Wrong(f"merge lost {len(missing)} of {len({**one, **two})} keys", "A key that only one cache has must be kept.")
    if merged(one, two) != merged(two, one):
        raise Wrong(
            "merge(a, b) and merge(b, a) differ",
            "Both caches may have a key, and even the same ms with two tactics. The rule must not ask which cache came first.",
        )
    if merged(one, two) != _plain(_smaller(one, two)):
        raise Wrong(
            "Of two entries for a key, merge kept another one than requirement 6 says", "Compare ms first, and then the names."
        )
    if merged(merged(one, two), three) != merged(one, merged(two, three)):
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
    called(stage, "save", drawn.build(drawn.layers[:1]).run(stage, {})[1], FILE)
    stage.restart()
    other = stage.another()
    caches = [
        drawn.build(drawn.layers[place : place + 1]).run(one, called(one, "load", FILE))[1]
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
    before = {f"key {number:03}": [f"tactic_{number}", number / 1000] for number in range(1, 40)}
    called(stage, "save", before, FILE)
    more = {f"more {number:03}": [f"tactic_{number}", number / 1000] for number in range(1, 400)}
    stage.restart(disk_bytes=512)
    stage.learner.call("save", more, FILE)  # may raise
    stage.restart()
    if lost := len(before) - len(before.keys() & _loaded(stage).keys()):
        raise Wrong(
            f"The disk was full while `save` wrote: {lost} of {len(before)} entries of the file are lost",
            "When is the old content gone, if you open the file for writing? Which call replaces a file in one step?",
        )
    stage.restart()  # the process that saves has not called `load`
    called(stage, "save", more, FILE)
    stage.restart()
    if not _loaded(stage).keys() >= more.keys() | before.keys():
        raise Wrong("After a failed `save`, the next one does not work", "What does the failed `save` leave in the folder?")


# What the file holds; None: half of what it held.
_DAMAGED = {
    "cut off": None,
    "no text": b"\xff\x00\xfe",
    "null": b"null",
    "a list": b"[1, 2]",
    "entries of one part": b'{"key": 3}',
}


def _file_is_damaged(stage: Stage, drawn: Network) -> None:
    _, cache = drawn.build().run(stage, {})
    called(stage, "save", cache, FILE)
    for what, content in _DAMAGED.items():
        if content is None:
            stage.learner.cut(FILE)
        else:
            stage.learner.place(FILE, base64.b64encode(content).decode())
        stage.restart()
        if isinstance(answer := stage.learner.call("load", FILE), Failed):
            raise Wrong(
                f"load of a damaged file ({what}) failed: {answer.line}",
                "A damaged file costs time, and no build. Which errors can reading raise?",
            )
        if answer != {}:
            raise Wrong(
                f"load of a damaged file ({what}) did not return an empty cache",
                "JSON can be valid and still not be a cache: an entry has two parts.",
            )
    build = drawn.build()
    names, cache = build.run(stage, _loaded(stage))
    if names != [build.answer(layer)[0] for layer in build.layers]:
        raise Wrong("A build with a damaged file has other tactics", "A damaged file is as good as no file.")
    called(stage, "save", cache, FILE)
    stage.restart()
    if len(_loaded(stage)) < drawn.signatures:
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
    ("another machine or layer is measured", _what_a_time_depends_on, True),
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
                scene(stage, Network(rng))
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
