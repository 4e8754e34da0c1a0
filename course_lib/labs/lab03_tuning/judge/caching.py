"""Task 4: scenes in which a timing cache is used, changed, merged, saved and damaged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Failed, Guest, PathIn, started
from course_lib.labs.lab03_tuning.judge.cache_builds import (
    FILE,
    FILES,
    Network,
    Stage,
    Wrong,
    called,
    is_cache,
    same_times,
    signature,
)
from course_lib.labs.lab03_tuning.judge.differing import (
    OF_LAYER,
    OF_MACHINE,
    Layer,
    Machine,
    other_layers,
    other_machines,
    tactics,
)
from course_lib.labs.lab03_tuning.judge.words import first_difference, hint_after

_FIELDS = (*OF_LAYER, *OF_MACHINE)
_BASES = 5  # layers of which each is changed in many ways
_UNCHANGED = 30  # builds without a change, among those with one
_WHOLE, _FILES_OF_A_PROCESS = 6, 12  # whole files among the damaged ones
# Entries of files, and of what is added to them. Small sizes are as frequent as large ones.
_FEW, _SEVERAL, _MANY = (1, 30), (30, 2500), (2500, 4500)
_ADDED, _ADDED_TO_FEW = (1, 200), (1, 9)
# Bytes of a disk for each entry: those of an entry do not fit into the first number in any form, and do in the second.
_TIGHT, _ROOMY = 20, 2048
_AFTER_FULL = "`save` must also work after one that failed. What does a failed `save` leave in the folder, and in its process?"


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
    found, expected = len(build.measured), len(drawn.distinct)
    if found != expected:
        raise Wrong(
            f"The first build called `measure` {found} times, expected {expected}: of its {len(build.layers)} layers, {expected} differ",
            "Equal layers are measured once. When do you add an entry, and where do you look it up?"
            if found > expected
            else "Each layer without a usable entry is measured. Do different layers have different keys?",
        )
    if names != wanted:
        raise Wrong(
            f"The first build has another tactic than `measure` returned: {_other_name(names, wanted)}",
            "Which name belongs to which layer?",
        )
    build.run(stage, {})
    if len(build.measured) != expected:
        raise Wrong(
            "A build with an empty cache did not measure again",
            "Keep entries in the cache alone, and not in a global variable.",
        )
    again, _ = build.run(stage, cache)
    if build.measured:
        raise Wrong(
            f"The second build called `measure` {len(build.measured)} times for the same layers",
            "Look a layer up before you measure it.",
        )
    if again != wanted:
        raise Wrong(
            f"The second build has another tactic than the first: {_other_name(again, wanted)}",
            "An entry holds the tactic of its own key.",
        )
    stage.restart()
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            f"A build in another process called `measure` {len(build.measured)} times for the same layers",
            "A cache is used by later processes. Is `key` the same text in each of them? `hash` and `id` are not.",
        )


def _other_name(names: Sequence[Any], wanted: Sequence[str]) -> str:
    return first_difference("names", list(names), list(wanted))


def _used(found: Mapping[str, Any], kept: Mapping[str, Any], fields: Sequence[str]) -> Wrong:
    names = [name for name in fields if found[name] != kept[name]]
    places = " and ".join(first_difference(name, found[name], kept[name]) for name in names)
    return Wrong(
        f"An entry was used although {places}",
        "Two keys must differ if the times may differ. Which fields are in your key, and which parts of them?",
    )


def _other_names(stage: Stage, drawn: Network) -> None:
    """Two copies of a layer at a time, so that a key that says too little does not mix it up with other layers."""
    for layer in drawn.distinct:
        build = drawn.build([drawn.disguised_layer(layer) for _ in range(2)], drawn.disguised_machine(drawn.machine))
        _, cache = drawn.build([layer]).run(stage, {})
        for before, most in ((cache, 0), ({}, 1)):
            build.run(stage, before)
            if len(build.measured) > most:
                raise Wrong(
                    "Equal layers with other names, one tactic less and fields in another order, on another host, were measured again",
                    "Which fields of layer and machine have no influence on a time? "
                    "Is their order fixed in your key, also inside of `attributes`?",
                )


def _what_a_time_depends_on(stage: Stage, drawn: Network) -> None:
    """Builds with changes, and others without a change, in secret order. Only what a time depends on tells them apart."""
    rng, here = drawn.rng, drawn.machine
    bases = [drawn.drawn_layer(wide=not number) for number in range(_BASES)]
    _, cache = drawn.build(bases).run(stage, {})
    changed: dict[str, tuple[Layer, Layer]] = {}  # a layer and the one that it was, by what its times depend on
    for base in bases:
        for other in other_layers(base, rng):
            if not any(same_times(other, one) for one in bases):
                changed[signature(other)] = other, base
    cases: list[tuple[list[tuple[Layer, Layer]], Machine]] = [([], here)] * _UNCHANGED
    left = [list(changed.values())[place] for place in rng.permutation(len(changed))]
    while left:
        several = int(rng.integers(1, 7))
        cases.append((left[:several], here))
        left = left[several:]
    cases += [([], machine) for machine in other_machines(here, rng)]
    found: dict[tuple[int, ...], Wrong] = {}  # by the fields that differ
    for pairs, machine in (cases[place] for place in rng.permutation(len(cases))):
        same = [(bases[place], bases[place]) for place in rng.permutation(_BASES)[: rng.integers(not pairs, 3)]]
        in_order = [[*pairs, *same][place] for place in rng.permutation(len(pairs) + len(same))]
        build = drawn.build([drawn.disguised_layer(one, base) for one, base in in_order], drawn.disguised_machine(machine))
        names, _ = build.run(stage, cache)
        for (one, base), layer in zip(in_order, build.layers, strict=True):
            now, before = {**one, **machine}, {**base, **here}
            differ = [place for place, name in enumerate(_FIELDS) if now[name] != before[name]]
            if differ and layer not in build.measured:
                found.setdefault((len(differ), *differ), _used(now, before, _FIELDS))
        if len(build.measured) > (len(pairs) if machine is here else len(in_order)):
            again = "Does your key depend on something that does not change a time, or is an entry measured that is usable?"
            found.setdefault((len(_FIELDS),), Wrong("A layer that had not changed was measured again", again))
        if names != [build.answer(one)[0] for one in build.layers]:
            tactic = Wrong(
                f"A build has another tactic than `measure` returned: {_other_name(names, [build.answer(one)[0] for one in build.layers])}",
                "An entry holds the tactic of its own key.",
            )
            found.setdefault((len(_FIELDS), 1), tactic)
    if found:
        raise found[min(found)]
    kept = {signature(base): called(stage, "key", base, here) for base in bases}
    asked = [(one, base, machine) for pairs, machine in cases for one, base in pairs or [(bases[0], bases[0])]]
    for one, base, machine in asked:
        answer = called(stage, "key", drawn.disguised_layer(one), drawn.disguised_machine(machine))
        same_key = one is base and machine is here
        if not isinstance(answer, str) or (answer == kept[signature(base)]) != same_key:
            raise Wrong(
                f"key did not return {'the same' if same_key else 'another'} text for {'the same' if same_key else 'other'} times",
                "Use `key` in `tuned`, so that both follow the same rule.",
            )


def _tactic_is_gone(stage: Stage, drawn: Network) -> None:
    """A build of a single layer, so that a key that says too little does not mix it up with other layers."""
    layer = drawn.distinct[0]
    _, cache = drawn.build([layer]).run(stage, {})
    best = drawn.fastest(layer)
    fewer = layer | {"tactics": [name for name in layer["tactics"] if name != best]}
    build = drawn.build([fewer])
    names, cache = build.run(stage, cache)
    if names == [best]:
        raise Wrong(
            "An entry's tactic was used although the builder no longer offers it",
            "A smaller workspace excludes tactics. What must hold for the tactic of an entry before you use it?",
        )
    if names != (wanted := [build.answer(fewer)[0]]):
        raise Wrong(
            f"After an entry whose tactic is gone, the result of `measure` was not used: {_other_name(names, wanted)}",
            "Which tactic did the new measurement return?",
        )
    build.run(stage, cache)
    if build.measured:
        raise Wrong(
            "An entry whose tactic is gone was measured, and the result was not kept",
            "Which entry must the new measurement replace?",
        )


def _merge(stage: Stage, drawn: Network) -> None:
    rng = drawn.rng
    caches: list[dict[str, Any]] = [{}, {}, {}]
    one, two, three = caches
    for times in (pair for several in (_far, _close, _as_text, _equal) for pair in (several(rng) for _ in range(12))):
        (key,), (first, second) = _texts(rng, 1), rng.permutation(2)
        for cache, place, tactic in zip(caches, (first, second, rng.integers(2)), tactics(rng, 3), strict=True):
            cache[key] = [tactic, times[place]]
        if rng.random() < 0.4:
            del caches[rng.integers(3)][key]

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
    wanted = _plain(_smaller(one, two))
    if wrong := next((key for key in wanted if both[key] != wanted[key]), None):
        raise Wrong(
            f"Of two entries for a key, merge kept another one than requirement 6 says: {_kept(both[wrong], wanted[wrong])}",
            "Compare ms first, and then the names.",
        )
    if more := [key for key in both if key not in wanted]:
        raise Wrong(f"merge added {len(more)} keys that no cache has", "A key is kept as it is.")
    if merged(both, three) != merged(one, merged(two, three)):
        raise Wrong(
            "The result for three caches depends on which two are merged first",
            "Keep one whole entry, and change nothing in it.",
        )


def _kept(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """How an entry differs from the one that had to be kept. The beginnings of the tactics' names may be long and equal."""
    if found[1] != wanted[1]:
        return f"its ms is {found[1]} instead of {wanted[1]}"
    return "ms is equal, and the tactic is not the first one in alphabetical order"


def _smaller(one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    both = [(key, entry) for cache in (one, two) for key, entry in cache.items()]
    found: dict[str, Any] = {}
    for key, entry in both:
        if key not in found or (entry[1], entry[0]) < (found[key][1], found[key][0]):
            found[key] = entry
    return found


def _drawn_cache(drawn: Network, count: int) -> dict[str, Any]:
    """Entries whose keys say what a time depends on, so that they have spaces, quotes and brackets, as other keys may."""
    rng, layers = drawn.rng, [drawn.drawn_layer() for _ in range(count)]
    values = _entries(rng, count).values()
    return {f"{signature(layer)} {drawn.machine['device']}": entry for layer, entry in zip(layers, values, strict=True)}


def _through_a_file(stage: Stage, drawn: Network) -> None:
    if called(stage, "load", FILE) != {}:
        raise Wrong("load of a missing file did not return an empty cache", "The first build on a machine has no file.")
    cache = _drawn_cache(drawn, _size(drawn.rng, *_FEW))
    called(stage, "save", cache, FILE)
    if not stage.learner.exists(FILE):
        raise Wrong("save did not write the file", "Write to the path that `save` receives.")
    stage.restart()
    if wrong := _changed(cache, _loaded(stage)):
        raise Wrong(f"load did not return the cache that was saved: {wrong}", "What does json make of your keys and entries?")


def _two_builds_save(stage: Stage, drawn: Network) -> None:
    """Two processes load the file, then save in turn: the other one has written since, and neither has seen what it wrote."""
    rng = drawn.rng
    first, *more = (_drawn_cache(drawn, int(rng.integers(1, 4))) for _ in range(5))
    called(stage, "save", first, FILE)
    stage.restart()
    other = stage.another()
    turns = (stage, other, stage, other)
    caches = [_loaded(one) | new for one, new in zip(turns, more, strict=True)]
    for one, before, cache in zip(turns, (other, stage, other, stage), caches, strict=True):
        one.receive(before)
        called(one, "save", cache, FILE)
    stage.receive(other)
    stage.restart()
    entries = {key: entry for cache in (first, *more) for key, entry in cache.items()}
    if wrong := _changed(entries, _loaded(stage)):
        raise Wrong(
            f"Two builds loaded the file, then both saved, and entries of one of them are lost: {wrong}",
            "What does the file hold when `save` reads it? "
            "Another build may have changed it since your `load`, and `open(path, 'w')` empties it.",
        )
    _same_keys(stage, entries, rng)


def _same_keys(stage: Stage, in_file: dict[str, Any], rng: np.random.Generator) -> None:
    """A process saves other entries for the keys of the file, which it has not loaded. The learner's own `merge` says what is kept."""
    mine = {key: [*tactics(rng, 1), rng.choice((ms / 2, ms, ms * 2))] for key, (_, ms) in in_file.items()}
    mine = _plain({key: [tactic, float(ms)] for key, (tactic, ms) in mine.items()})
    merged = [stage.learner.call("merge", *pair) for pair in ((in_file, mine), (mine, in_file))]
    stage.restart()
    called(stage, "save", mine, FILE)
    stage.restart()
    found = _loaded(stage)
    # A `merge` that fails, or depends on the order, is another requirement.
    allowed = [one for one in merged if is_cache(one) and one.keys() == mine.keys()] or [_plain(_smaller(in_file, mine))]
    for key in mine:
        if key not in found or not any(found[key] == one[key] for one in allowed):
            how = _kept(found[key], allowed[0][key]) if key in found else "it is lost"
            raise Wrong(
                f"The file and the cache had two entries for a key, and save did not keep the one that merge keeps: {how}",
                "Another build may have measured the same layer. See requirement 9.",
            )


def _disk_is_full(stage: Stage, drawn: Network) -> None:
    """Saves in secret order: with space, without, on a disk that is full once `save` opens a file, and on one that has space again."""
    rng = drawn.rng
    held = {file: _entries(rng, _size(rng, *bounds)) for file, bounds in zip(FILES, (_FEW, _SEVERAL, _MANY), strict=True)}
    tight, roomy = (size * len(held[file]) for size, file in ((_TIGHT, FILES[0]), (_ROOMY, FILES[-1])))

    def saved() -> dict[PathIn, Any]:
        """What was added to each file, or `Failed`. The first file stays so short that a buffer can hold it until it is closed."""
        found = {}
        for file in (FILES[place] for place in rng.permutation(len(FILES))):
            more = _entries(rng, _size(rng, *(_ADDED_TO_FEW if file is FILES[0] else _ADDED)))
            answer = stage.learner.call("save", more, file)
            found[file] = answer if isinstance(answer, Failed) else more
        return found

    stage.restart(disk_bytes=roomy)
    for file, entries in held.items():
        called(stage, "save", entries, file)
    for disk in (*rng.permutation(["full", "fills", "has space again", "has space"]), "has space"):
        stage.restart(disk_bytes=tight if disk == "full" else roomy)  # this process has not called `load`
        if disk == "fills":
            for file in FILES:
                stage.learner.fill(file, tight)
        if disk == "has space again":
            stage.learner.space(tight)
            saved()
            _check_kept(held, {file: _loaded(stage, file) for file in FILES})
            stage.learner.space(None)
        more = saved()
        if failed := next((one for one in more.values() if disk.startswith("has") and isinstance(one, Failed)), None):
            raise Wrong(f"The disk {disk}, and save failed: {failed.line}", hint_after(failed.line, _AFTER_FULL))
        stage.restart()
        found = {file: _loaded(stage, file) for file in FILES}
        if disk.startswith("has"):
            held = {file: entries | more[file] for file, entries in held.items()}
            for file, entries in held.items():
                if wrong := _changed(entries, found[file]):
                    raise Wrong(f"The disk {disk}, and after save, {wrong}", _AFTER_FULL)
        else:
            _check_kept(held, found)


def _check_kept(held: Mapping[PathIn, Mapping[str, Any]], found: Mapping[PathIn, Mapping[str, Any]]) -> None:
    for file, entries in held.items():
        if lost := _lost(entries, found[file]):
            raise Wrong(
                f"The disk was full while `save` wrote: {lost} of {len(entries)} entries of the file are lost",
                "The old content must stay until the new one is completely written and the file is closed. "
                "Does `save` remove it earlier: with `open(path, 'w')`, or with `os.replace` before the file is closed?",
            )


def _size(rng: np.random.Generator, least: int, most: int) -> int:
    return int(least * (most / least) ** rng.random())


def _lost(entries: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    return sum(found.get(key) != entry for key, entry in entries.items())


def _changed(entries: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """How many of the entries are missing or changed, and how the first one is changed; "" if all are there."""
    wrong = [key for key, entry in entries.items() if found.get(key) != entry]
    if not wrong:
        return ""
    count = f"{len(wrong)} of {len(entries)} entries are"
    how = (first_difference("entry", found[key], entries[key]) for key in wrong if key in found)
    return next((f"{count} missing or changed, such as: {one}" for one in how), f"{count} missing")


def _texts(rng: np.random.Generator, count: int) -> list[str]:
    return [rng.bytes(16).hex() for _ in range(count)]


def _entries(rng: np.random.Generator, count: int) -> dict[str, Any]:
    names = (f"tactic_{number:08x}" for number in rng.integers(0, 1 << 32, count))
    return {key: [name, _ms(rng)] for key, name in zip(_texts(rng, count), names, strict=True)}


def _far(rng: np.random.Generator) -> tuple[float, float]:
    return _ms(rng), _ms(rng)


def _close(rng: np.random.Generator) -> tuple[float, float]:
    """Two times that differ in their last digit."""
    digits = int(rng.integers(2, 16))
    number, exponent = int(rng.integers(10 ** (digits - 1), 10**digits)), int(rng.integers(-5, 1)) - digits
    return float(f"{number}e{exponent}"), float(f"{number + 1}e{exponent}")


def _as_text(rng: np.random.Generator) -> tuple[float, float]:
    """Two times whose order is another one for their texts, such as 9.5 and 10.5."""
    power = float(rng.choice((1e-5, 1, 10)))
    return power * float(rng.uniform(2, 9.9)), power * float(rng.uniform(10.1, 19))


def _equal(rng: np.random.Generator) -> tuple[float, float]:
    return (_ms(rng),) * 2


def _ms(rng: np.random.Generator) -> float:
    """Milliseconds, from 10 ns to 1 s. Half of those from 1 ms on are whole numbers."""
    ms = float(f"{10 ** rng.uniform(-5, 3):.6g}")
    return int(ms) if ms >= 1 and rng.random() < 0.5 else ms


def _damaged(rng: np.random.Generator, content: str) -> Iterator[tuple[str, bytes | str]]:
    """What a damaged file holds, as bytes or in base64, by the kind of damage.

    Args:
        content: a whole file, in base64.
    """
    # Within the first half, because the last part of a database can hold an index without which all entries are still there.
    yield "cut off", content[: 4 * int(rng.integers(1, max(2, len(content) // 8)))]
    # No text begins like this, nor does anything that pickle reads.
    yield "no text", bytes([rng.integers(0xF8, 0x100)]) + rng.bytes(int(rng.integers(20, 200)))
    text, numbers = _texts(rng, 1)[0], rng.integers(0, 1 << 20, int(rng.integers(1, 9))).tolist()
    others = {"null": None, "true": True, "false": False, "a list": numbers, "an object": {text: _ms(rng)}}
    for what, plain in {**others, "a number": _ms(rng), "a text": text}.items():
        if what != "an object":
            yield f"{what} instead of a dictionary", json.dumps(plain).encode()
    for what in _wrong_entries(["", 0], others):
        entries = _entries(rng, int(rng.integers(5, 40)))
        place = str(rng.choice(list(entries)))
        for which, keys in (("each entry", [*entries]), ("one entry", [place])):
            wrong = {key: _wrong_entries(entries[key], others)[what] for key in keys}
            yield f"{which}: {what}", json.dumps(entries | wrong).encode()


def _wrong_entries(entry: Sequence[Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """What takes the place of an entry, by its description.

    Args:
        others: neither texts nor numbers, by their names.
    """
    tactic, ms = entry
    found = {
        "one part": [tactic],
        "three parts": [tactic, ms, ms],
        "ms before the tactic": [ms, tactic],
        "a number": ms,
        "a text of two": tactic[:2],
        "an object of two": {tactic: ms, "ms": ms},
        "a number as tactic": [ms, ms],
        "a text as time": [tactic, str(ms)],
    }
    for what, plain in others.items():
        found |= {what: plain, f"{what} as tactic": [plain, ms], f"{what} as time": [tactic, plain]}
    return found


def _file_is_damaged(stage: Stage, drawn: Network) -> None:
    cache = _drawn_cache(drawn, _size(drawn.rng, *_FEW))
    saved = not isinstance(stage.learner.call("save", cache, FILE), Failed)  # else, requirement 8 is not met
    whole = (saved and stage.learner.content(FILE)) or ""
    files = [*_damaged(drawn.rng, whole), *([("", whole)] * _WHOLE if whole else [])]
    found: dict[int, Wrong] = {}
    for number, place in enumerate(map(int, drawn.rng.permutation(len(files)))):
        what, content = files[place]
        if number % _FILES_OF_A_PROCESS == 0:
            stage.restart()
        stage.learner.place(FILE, content if isinstance(content, str) else base64.b64encode(content).decode())
        answer = stage.learner.call("load", FILE)
        if not what and (not is_cache(answer) or _lost(cache, answer)):
            how = answer.line if isinstance(answer, Failed) else _changed(cache, answer) if is_cache(answer) else "not a cache"
            found[place] = Wrong(
                f"load of a whole file did not return its cache: {how}",
                "A file may have changed since the last call. Does `load` read it each time?",
            )
        elif isinstance(answer, Failed):
            found[place] = Wrong(
                f"load of a damaged file ({what}) failed: {answer.line}",
                hint_after(answer.line, "A damaged file costs time, and no build. Which errors can reading raise?"),
            )
        elif what and answer != {}:
            found[place] = Wrong(
                f"load of a damaged file ({what}) did not return an empty cache",
                "JSON can be valid and still not be a cache: every entry must be a pair of a text and a number.",
            )
    if found:
        raise found[min(found)]
    if not saved:
        return
    stage.learner.place(FILE, base64.b64encode(drawn.rng.bytes(int(drawn.rng.integers(20, 200)))).decode())
    stage.restart()
    called(stage, "save", cache, FILE)
    stage.restart()
    if wrong := _changed(cache, _loaded(stage)):
        raise Wrong(f"save did not replace a damaged file: {wrong}", "`save` reads the file too. What if it cannot?")


def _loaded(stage: Stage, file: PathIn = FILE) -> dict[str, Any]:
    found = called(stage, "load", file)
    if not is_cache(found):
        raise Wrong("load did not return a cache", "A cache is a dictionary from key to (tactic, ms).")
    return dict(found)


def _plain(cache: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(cache))


_ENTRIES = "a build keeps old entries, and adds what `measure` returned"  # judged in each scene
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
    found: list[Found] = []
    mistakes: list[Wrong] = []
    for name, scene, half in _SCENES:
        with ExitStack() as stack:
            stage = Stage(partial(_started, source, launcher, rng), stack)
            network = Network(rng)
            try:
                scene(stage, network)
                found.append(Found(name, half))
            except Wrong as wrong:
                found.append(Found(name, half, str(wrong), wrong.hint, wrong.empty))
                if wrong.empty and len(found) == 1:
                    return found
            mistakes += network.mistakes
    entries = Found(_ENTRIES, True)
    if mistakes:
        entries = Found(_ENTRIES, True, str(mistakes[0]), mistakes[0].hint)
    elif all(one.said for one in found if one.needed_for_half):  # then no build returned a cache
        entries = replace(found[0], name=_ENTRIES)
    return [found[0], entries, *found[1:]]


def _started(
    source: Path,
    launcher: Launcher | None,
    rng: np.random.Generator,
    *,
    files: Mapping[PathIn, str | None] | None = None,
    disk_bytes: int | None = None,
) -> AbstractContextManager[Guest]:
    """A process of the task. Each has a limit for its files, so that a limit does not say which scene it is."""
    most = disk_bytes or int(rng.integers(*_MANY)) * int(rng.choice((_TIGHT, _ROOMY)))
    return started(source, launcher, files=files, disk_bytes=most)


def criteria(found: Sequence[Found]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    full = [Criterion(one.name, "no" if one.said else "yes", "yes", not one.said) for one in found]
    pairs = zip(full, found, strict=True)
    half = [Criterion(row.name, row.found, row.bound, row.met, HALF) for row, one in pairs if one.needed_for_half]
    return full, half
