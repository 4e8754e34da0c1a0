"""The stage for the faults: caches on a disk, servers that start on them, and what they answered."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.files import remove_tree
from course_lib.labs.lab12_serving.network import INPUT, OUTPUT, SCORES
from course_lib.labs.lab12_serving.sandboxed.server_process import Builder, Nursery, ServerProcess, Ticket

MOST_ENTRIES, LONGEST_NAME = 200, 100  # of a cache: files and folders, and bytes of a name
_MOST_BYTES = 64 << 20  # of all files, a hundred times the plan
WITHOUT_PLAN, WITH_A_FAILURE = "without a plan", "in flight together with a failing one"


@dataclass
class Reply:
    """The answer to one request, without its numbers, which are in the scene's `scores`.

    Attributes:
        first, rows: the rows of the judge's features that were sent; `rows` is 0 for a malformed request.
        model: the model with the right answer: ``"old"``, ``"new"`` or ``"either"``.
        status: that of `Ticket`, or ``"misshapen"`` for an answer that is not an array of scores.
        kind: what is wrong with a malformed request, or why a well-formed one may end in an error: `WITHOUT_PLAN` or `WITH_A_FAILURE`.
    """

    first: int
    rows: int
    model: str
    status: str
    text: str
    kind: str = ""


@dataclass
class Scene:
    """What happened in one scene.

    Attributes:
        failed: why a server that should have come up did not; empty otherwise.
        builds: number of build requests, by step.
        flags: anything else that the judge should know.
    """

    name: str
    failed: str = ""
    replies: list[Reply] = field(default_factory=list)
    builds: dict[str, int] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    scores: list[np.ndarray] = field(default_factory=list, repr=False)

    @property
    def unanswered(self) -> bool:
        """Whether a server left a well-formed request without an answer."""
        return any(reply.status == "none" and not reply.kind for reply in self.replies)

    def add(self, ticket: Ticket, first: int, rows: int, model: str, kind: str = "") -> None:
        """Record the answer to a request. The scores are kept if the status is ``"ok"`` and the request has rows."""
        status, text = ticket.status, ticket.text
        if ticket.empty:
            self.flags["empty"] = True
        if rows and status == "ok":
            if problem := misshapen(ticket.outputs, rows):
                status, text = "misshapen", problem
            else:
                self.scores.append(ticket.outputs[OUTPUT])
        self.replies.append(Reply(first, rows, model, status, text, kind))


def misshapen(outputs: Mapping[str, np.ndarray], rows: int) -> str:
    """How an answer differs in form from the scores of so many rows; empty if it does not."""
    answer = outputs.get(OUTPUT, np.empty(0))
    if set(outputs) == {OUTPUT} and answer.shape == (rows, SCORES) and answer.dtype == np.float32:
        return ""
    found = ", ".join(f"{name[:40]} {array.dtype} {array.shape}" for name, array in outputs.items())
    return f"expected {OUTPUT} float32 ({rows}, {SCORES}), found {found or 'nothing'}"[:300]


@dataclass
class Stage:
    """What all scenes share.

    Attributes:
        nursery: starts the servers' processes.
        sources: the server's files, name to text.
        plans: see `Builder`.
        models: files by name. ``"new"`` has other weights than ``"old"``, ``"unbuildable"`` has no plan, and the others have other graphs.
        recipes: by name: ``"wide"`` is the usual one, and the others differ from it in one value each.
        features: fresh rows, float32 ``(n, FEATURES)``; each is used once.
        version, device: version and device of the engines here.
        apart: every server is started in its own namespaces, see `own_namespace`.
    """

    nursery: Nursery
    sources: dict[str, str]
    plans: Mapping[str, tuple[dict[str, Any], np.ndarray]]
    models: dict[str, Path]
    recipes: dict[str, Any]
    features: np.ndarray
    version: str
    device: str
    apart: bool = False
    used: int = 0

    @contextlib.contextmanager
    def server(
        self,
        cache: Path,
        builder: Builder,
        *,
        recipe: str = "wide",
        model: str = "old",
        release: tuple[str, str] = ("", ""),
        **limits: Any,
    ) -> Iterator[ServerProcess]:
        """Start a server on `cache`. `release` sets another version or device; `limits` are those of `server_host`."""
        version, device = (theirs or ours for theirs, ours in zip(release, (self.version, self.device), strict=True))
        served = cache.with_name("scorer.onnx")  # one name for whatever model is deployed, as in production
        served.write_bytes(self.models[model].read_bytes())
        begin = {"sources": self.sources, "model": str(served), "recipe": self.recipes[recipe], "cache": str(cache)}
        begin |= {
            "apart": self.apart,
            "on_gpu": self.device != "cpu",
            "readable": [str(path) for path in (served, *self.models.values())],
            "writable": [str(cache)],
            "version": version,
            "device": device,
            "file_bytes": None,
            "die": False,
            "failing": [],
            "delay": "",
            **limits,
        }
        with ServerProcess(self.nursery, begin, builder) as process:
            yield process

    def builder(self, **options: Any) -> Builder:
        """A builder that has this stage's plans; `options` are the other arguments of `Builder`."""
        return Builder(self.plans, **options)

    def requests(self, sizes: list[int]) -> list[tuple[int, dict[str, np.ndarray]]]:
        """Well-formed requests with these numbers of rows, each after the number of its first row.

        Raises:
            ValueError: more rows than are left.
        """
        if self.used + sum(sizes) > len(self.features):
            raise ValueError(f"{self.used + sum(sizes)} rows are needed, {len(self.features)} were given")
        made = []
        for rows in sizes:
            made.append((self.used, {INPUT: self.features[self.used : self.used + rows]}))
            self.used += rows
        return made

    def try_server(
        self, scene: Scene, process: ServerProcess, sizes: list[int], *, model: str = "old", clients: int = 1
    ) -> list[Ticket]:
        """Send requests to a server once it is up, and note all answers. A scene that is lost gets no further requests.

        Each wait has a limit. A server that never answers would otherwise use all of them in every scene.
        """
        if scene.failed or scene.unanswered:
            return []
        if failed := process.wait_ready():
            scene.failed = failed
            scene.flags["empty"] = process.empty
            return []
        requests = self.requests(sizes)
        tickets = process.answers([feeds for _, feeds in requests], clients)
        for (first, feeds), ticket in zip(requests, tickets, strict=True):
            scene.add(ticket, first, len(feeds[INPUT]), model)
        return tickets

    def serve(
        self, scene: Scene, step: str, cache: Path, sizes: tuple[int, ...] = (1, 3, 16), *, model: str = "old", **options: Any
    ) -> None:
        """Start a server on `cache`, send requests, and end it. Its build requests are recorded under `step`."""
        builder = self.builder()
        scene.failed = scene.failed or renewed(cache)
        with self.server(cache, builder, model=model, **options) as process:
            self.try_server(scene, process, list(sizes), model=model)
        scene.builds[step] = builder.builds


def plain_files(folder: Path) -> list[Path]:
    """The files in a folder and below, without links, which may point to anything."""
    files = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return [file for file in files if stat.S_ISREG(file.lstat().st_mode)]


def renewed(cache: Path) -> str:
    """Put a copy in the place of a cache: of what it holds, only plain files with name, content and time of modification stay.

    Damage changes nothing but content. Inode numbers and times of change would tell a server which files the judge has touched, so
    they are new before every start. Links, and names in any number, could hold a plan that no damage reaches.

    Returns:
        why the cache cannot be copied; empty if it was.
    """
    old = cache.rename(cache.with_name("before"))
    try:
        cache.mkdir()
        return _copied(old, cache)
    except OSError as error:
        return f"the cache cannot be copied: {error.strerror}"
    finally:
        remove_tree(old)


def _copied(old: Path, new: Path) -> str:
    entries = size = 0
    for folder, folders, files in os.walk(old):
        for name in (*folders, *files):
            entries += 1
            if entries > MOST_ENTRIES or len(os.fsencode(name)) > LONGEST_NAME:
                return f"the cache has more than {MOST_ENTRIES} files and folders, or a name of more than {LONGEST_NAME} bytes"
            source = Path(folder, name)
            target = new / source.relative_to(old)
            found = source.lstat()
            if stat.S_ISDIR(found.st_mode):
                target.mkdir()
            elif stat.S_ISREG(found.st_mode):
                size += found.st_size
                if size > _MOST_BYTES:
                    return f"the cache has more than {_MOST_BYTES >> 20} MiB"
                shutil.copyfile(source, target, follow_symlinks=False)
                os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
    return ""


@contextlib.contextmanager
def empty_cache() -> Iterator[Path]:
    """An empty folder for a cache."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        cache.mkdir()
        yield cache
