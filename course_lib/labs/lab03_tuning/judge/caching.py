"""Task 4: scenes in which a timing cache is used, changed, merged, saved and damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Guest, PathIn, started
from course_lib.labs.lab03_tuning.judge import build_scenes, file_scenes, merge_scene
from course_lib.labs.lab03_tuning.judge.cache_builds import Network, Stage, Wrong

Scene = Callable[[Stage, Network], None]
_ENTRIES = "a build keeps old entries, and adds what `measure` returned"  # judged in each scene
_SCENES: Sequence[tuple[str, Scene, bool]] = (
    ("a second build measures nothing", build_scenes.second_build, True),
    ("names and hosts do not matter", build_scenes.other_names, True),
    ("another machine or layer is measured, and no other one", build_scenes.what_a_time_depends_on, True),
    ("a tactic that is gone is not used", build_scenes.tactic_is_gone, True),
    ("two caches are merged in any order", merge_scene.merge, False),
    ("a file keeps the cache", file_scenes.through_a_file, False),
    ("two builds save to one file", file_scenes.two_builds_save, False),
    ("a full disk loses nothing", file_scenes.disk_is_full, False),
    ("a damaged file counts as missing", file_scenes.file_is_damaged, False),
)


@dataclass(frozen=True)
class Found:
    """The result of one scene: why it failed, or ""."""

    name: str
    needed_for_half: bool
    said: str = ""
    hint: str = ""
    empty: bool = False


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
    return started(source, launcher, files=files, disk_bytes=disk_bytes or file_scenes.drawn_disk_bytes(rng))


def criteria(found: Sequence[Found]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    full = [Criterion.yes_or_no(one.name, not one.said) for one in found]
    half = [Criterion.yes_or_no(one.name, not one.said, HALF) for one in found if one.needed_for_half]
    return full, half
