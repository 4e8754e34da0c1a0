"""Task 4: a cache that is kept in a file, by one build or two, on a full disk, and after damage."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from course_lib.labs.framework.guest import Failed, PathIn
from course_lib.labs.lab03_tuning.judge.cache_builds import FILE, FILES, Network, Stage, Wrong, called, is_cache
from course_lib.labs.lab03_tuning.judge.cache_entries import drawn_cache, drawn_entries
from course_lib.labs.lab03_tuning.judge.damaged_files import damaged_contents
from course_lib.labs.lab03_tuning.judge.differing import tactics
from course_lib.labs.lab03_tuning.judge.merge_scene import difference_from_kept, right_merge
from course_lib.labs.lab03_tuning.judge.words import first_difference, hint_after

_WHOLE, _FILES_OF_A_PROCESS = 6, 12  # whole files among the damaged ones
# Entries of files, and of what is added to them. Small sizes are as frequent as large ones.
_FEW, _SEVERAL, _MANY = (1, 30), (30, 2500), (2500, 4500)
_ADDED, _ADDED_TO_FEW = (1, 200), (1, 9)
# Bytes of a disk for each entry: those of an entry do not fit into the first number in any form, and do in the second.
_TIGHT, _ROOMY = 20, 2048
_AFTER_FULL = "`save` must also work after one that failed. What does a failed `save` leave in the folder, and in its process?"


def through_a_file(stage: Stage, drawn: Network) -> None:
    """A missing file is an empty cache, and a process loads what an earlier one saved."""
    if called(stage, "load", FILE) != {}:
        raise Wrong("load of a missing file did not return an empty cache", "The first build on a machine has no file.")
    cache = drawn_cache(drawn, _size(drawn.rng, *_FEW))
    called(stage, "save", cache, FILE)
    if not stage.learner.exists(FILE):
        raise Wrong("save did not write the file", "Write to the path that `save` receives.")
    stage.restart()
    if wrong := _changed(cache, _loaded(stage)):
        raise Wrong(f"load did not return the cache that was saved: {wrong}", "What does json make of your keys and entries?")


def two_builds_save(stage: Stage, drawn: Network) -> None:
    """Two processes load the file, then save in turn: the other one has written since, and neither has seen what it wrote."""
    rng = drawn.rng
    first, *more = (drawn_cache(drawn, int(rng.integers(1, 4))) for _ in range(5))
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
    mine = {key: [*tactics(rng, 1), float(rng.choice((ms / 2, ms, ms * 2)))] for key, (_, ms) in in_file.items()}
    merged = [stage.learner.call("merge", *pair) for pair in ((in_file, mine), (mine, in_file))]
    stage.restart()
    called(stage, "save", mine, FILE)
    stage.restart()
    found = _loaded(stage)
    # A `merge` that fails, or depends on the order, is another requirement.
    allowed = [one for one in merged if is_cache(one) and one.keys() == mine.keys()] or [right_merge(in_file, mine)]
    for key in mine:
        if key not in found or not any(found[key] == one[key] for one in allowed):
            how = difference_from_kept(found[key], allowed[0][key]) if key in found else "it is lost"
            raise Wrong(
                f"The file and the cache had two entries for a key, and save did not keep the one that merge keeps: {how}",
                "Another build may have measured the same layer. See requirement 9.",
            )


def disk_is_full(stage: Stage, drawn: Network) -> None:
    """Saves in secret order: with space, without, on a disk that is full once `save` opens a file, and on one that has space again."""
    rng = drawn.rng
    held = {file: drawn_entries(rng, _size(rng, *bounds)) for file, bounds in zip(FILES, (_FEW, _SEVERAL, _MANY), strict=True)}
    tight, roomy = (size * len(held[file]) for size, file in ((_TIGHT, FILES[0]), (_ROOMY, FILES[-1])))

    def saved() -> dict[PathIn, Any]:
        """What was added to each file, or `Failed`. The first file stays so short that a buffer can hold it until it is closed."""
        found = {}
        for file in (FILES[place] for place in rng.permutation(len(FILES))):
            more = drawn_entries(rng, _size(rng, *(_ADDED_TO_FEW if file is FILES[0] else _ADDED)))
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


def drawn_disk_bytes(rng: np.random.Generator) -> int:
    """The size of a tight or of a roomy disk, as `disk_is_full` may have it."""
    return int(rng.integers(*_MANY)) * int(rng.choice((_TIGHT, _ROOMY)))


def file_is_damaged(stage: Stage, drawn: Network) -> None:
    """Damaged files, and whole ones among them, in secret order. Then `save` replaces a damaged file."""
    cache = drawn_cache(drawn, _size(drawn.rng, *_FEW))
    saved = not isinstance(stage.learner.call("save", cache, FILE), Failed)  # else, requirement 8 is not met
    whole = (saved and stage.learner.content(FILE)) or ""
    files = [*damaged_contents(drawn.rng, whole), *([("", whole)] * _WHOLE if whole else [])]
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


def _size(rng: np.random.Generator, least: int, most: int) -> int:
    return int(least * (most / least) ** rng.random())


def _loaded(stage: Stage, file: PathIn = FILE) -> dict[str, Any]:
    found = called(stage, "load", file)
    if not is_cache(found):
        raise Wrong("load did not return a cache", "A cache is a dictionary from key to (tactic, ms).")
    return dict(found)


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
