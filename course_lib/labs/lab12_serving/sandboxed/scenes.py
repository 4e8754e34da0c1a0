"""The scenes of lab 12: starts and requests of a server, with a fault in between."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.labs.lab12_serving.network import FEATURES, INPUT, MOST_ROWS
from course_lib.labs.lab12_serving.sandboxed.engine_host import DELAY, row_digest
from course_lib.labs.lab12_serving.sandboxed.server_process import NOT_UP, RAISED, READY_S, ServerProcess, Ticket
from course_lib.labs.lab12_serving.sandboxed.stage import WITH_A_FAILURE, WITHOUT_PLAN, Scene, Stage, empty_cache, plain_files

_FAILURE_ROUND, _AFTER_FAILURE = 20, 4  # requests of a round with one whose run fails; the fewest of them that come after it
_FAILURE_CLIENTS = 4  # of such a round, unless its requests come one at a time
_ROLLOUTS = 11  # of networks that can be built
_DELAYS_S = (1.0, 1.3)  # of a build and of a load in some of them, at least twice `LONGEST_WAIT_S`
LONGEST_WAIT_S = 0.5  # for an answer during a rollout; right servers took up to 0.021 on two loaded cores
_SHORTEST_PAUSE_S = 0.01  # between two requests during a rollout
CLIENTS = 8
_FLIPPED = 64  # bytes of a file in which bits are flipped
_SEARCHES = 40  # for pieces of each plan in a file
_FLIPS = 4  # starts with flipped bits, each in another part of the plan
_FEW = (1, 2, 1)  # flipped bits in the first parts; in the others it is many
_BIT, _SMALL = 0x40, range(0x3A, 0x3F)  # the bit, and the bytes in which it makes a huge number
Harm = Callable[[Path, Stage], None]
_SECRET = random.SystemRandom()


def warm(stage: Stage, scene: Scene) -> None:
    """Start on an empty cache, then twice on the same cache."""
    with empty_cache() as cache:
        for step in ("first start", "second start", "third start"):
            stage.serve(scene, step, cache)


def damaged(*harms: Harm) -> Callable[[Stage, Scene], None]:
    """A scene in which something happens to the files of the cache before each start but the first and the last.

    In between, at secret places, are two starts before which nothing happens. Else a store could know from the number of a start
    whether its files are right.
    """

    def scene_of(stage: Stage, scene: Scene) -> None:
        order = [*harms, nothing]
        _SECRET.shuffle(order)
        order.insert(_SECRET.randint(0, len(order)) if len(harms) > 1 else 0, nothing)
        builds: dict[str, list[int]] = {}
        with empty_cache() as cache:
            stage.serve(scene, "first start", cache)
            for harm in order:
                files = plain_files(cache)
                scene.flags.setdefault("cached", any(file.stat().st_size for file in files))
                for file in files:  # all of them: a fault that spares some files could be caught by one that nothing depends on
                    before = file.stat()
                    harm(file, stage)
                    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # no disk sets a file's time when it damages it
                step = "start in between" if harm is nothing else "start after it"
                stage.serve(scene, step, cache)
                builds.setdefault(step, []).append(scene.builds[step])
                if scene.failed:
                    break
            scene.builds |= {step: min(found) for step, found in builds.items()}
            stage.serve(scene, "start after that", cache)

    return scene_of


def nothing(file: Path, stage: Stage) -> None:
    """The file stays as it is."""


def flipped(part: int) -> Harm:
    """Flip bits at a secret place of a file, as on a bad disk: among the weights in a part of a plan, if the file holds some.

    Such a plan still loads. A server that looks only at a piece of the plan cannot know which piece. In most parts, few bits are
    flipped: one, which every seventh byte does not show, or the same one twice, which a sum modulo 2 does not show.
    """

    def harm(file: Path, stage: Stage) -> None:
        content = bytearray(file.read_bytes())
        places = _weights(content, stage, part)
        if places and part < len(_FEW):
            masks = dict.fromkeys(_exponents(content, places, _FEW[part]), _BIT)
        else:
            begin = _SECRET.randrange(len(content) or 1)
            masks = {place: _SECRET.randrange(1, 256) for place in places or range(begin, min(begin + _FLIPPED, len(content)))}
        for place, mask in masks.items():
            content[place] ^= mask
        file.write_bytes(content)

    return harm


def _exponents(content: bytearray, places: set[int], count: int) -> list[int]:
    """So many secret places among these that look like the last byte of a small float32: its bit then makes a huge number."""
    likely = sorted(place for place in places if content[place] & 0x7F in _SMALL) or sorted(places)
    return _SECRET.sample(likely, min(count, len(likely)))


def _weights(content: bytearray, stage: Stage, part: int) -> set[int]:
    """The places in a file of a secret piece of a plan's part, wherever the piece is; empty if the file has none of the part."""
    plans = [plan.tobytes() for _, plan in stage.plans.values()]
    for data in _SECRET.sample(plans, len(plans)):
        for _ in range(_SEARCHES):
            begin = _SECRET.randrange(part * len(data) // _FLIPS, (part + 1) * len(data) // _FLIPS - _FLIPPED)
            piece = data[begin : begin + _FLIPPED]
            if len(set(piece)) <= _FLIPPED // 4:  # a row of zeros, which is everywhere, and no weights
                continue
            places, found = set[int](), content.find(piece)
            while found >= 0:
                places.update(range(found, found + _FLIPPED))
                found = content.find(piece, found + _FLIPPED)
            if places:
                return places
    return set()


def truncated(file: Path, stage: Stage) -> None:
    """The second half of the file is missing."""
    with open(file, "r+b") as opened:
        opened.truncate(file.stat().st_size // 2)


def emptied(file: Path, stage: Stage) -> None:
    """The file is empty, as after a power failure."""
    file.write_bytes(b"")


def retrained(stage: Stage, scene: Scene) -> None:
    """The cache has plans of a retrained network, in whose file one bit of one weight differs, and of networks with other graphs."""
    _after_others(stage, scene, [{"model": name} for name in stage.models if name not in ("old", "unbuildable")])


def another_recipe(stage: Stage, scene: Scene) -> None:
    """The cache has plans of recipes each of which differs in one value. Every field of a recipe is among them."""
    _after_others(stage, scene, [{"recipe": name} for name in stage.recipes if name != "wide"])


def another_version(stage: Stage, scene: Scene) -> None:
    """The cache has plans of other versions of TensorRT, whose names are close."""
    _after_others(stage, scene, [{"release": (other, "")} for other in _close_to(stage.version)])


def another_device(stage: Stage, scene: Scene) -> None:
    """The cache was on machines with other GPUs, near relatives. On two of them, a letter belongs to the version in place of the device."""
    version, device = stage.version, stage.device if stage.device != "cpu" else "sm90"
    releases = [("", other) for other in (*_close_to(device), device) if other != stage.device]
    releases += [(version + device[0], device[1:]), (version[:-1], version[-1] + device)]
    _after_others(stage, scene, [{"release": release} for release in releases])


def _after_others(stage: Stage, scene: Scene, others: list[dict[str, Any]]) -> None:
    """Start in each of these ways, in a secret order, then in the usual way, with one cache. Each start needs its own plan."""
    with empty_cache() as cache:
        for number, options in enumerate(_SECRET.sample(others, len(others))):
            stage.serve(scene, f"between {number}" if number else "before", cache, (1, 3), **options)
        stage.serve(scene, "after", cache)


def _close_to(text: str) -> list[str]:
    """The text with another digit in the place of each, with one more letter, and with a point moved. What is drawn is secret."""
    made = [text + _SECRET.choice("abcdef")]
    for place, letter in enumerate(text):
        if letter.isdigit():
            made.append(f"{text[:place]}{_SECRET.choice([one for one in '0123456789' if one != letter])}{text[place + 1 :]}")
    moved = [f"{text[:n]}{text[n + 1]}{text[n]}{text[n + 2 :]}" for n in range(len(text) - 1) if "." in text[n : n + 2]]
    moved = [one for one in moved if all(one.split("."))]
    return [*made, *_SECRET.sample(moved, min(1, len(moved)))]


def build_fails(stage: Stage, scene: Scene) -> None:
    """The compiler is killed while the server starts; then it works again."""
    with empty_cache() as cache:
        with stage.server(cache, stage.builder(failure="the compiler's process ended: SIGKILL")) as process:
            if not (failed := process.wait_ready()):
                stage.try_server(scene, process, [1])
                scene.replies[-1].kind = WITHOUT_PLAN
            scene.flags["start ended"] = NOT_UP not in failed
        stage.serve(scene, "next start", cache)


def killed(stage: Stage, scene: Scene) -> None:
    """The server is killed after half of the plan was written."""
    with empty_cache() as cache:
        half = min(len(data) for _, data in stage.plans.values()) // 2
        with stage.server(cache, stage.builder(), file_bytes=half, die=True) as process:
            process.wait_ready()
        scene.flags["wrote on"] = _size(cache) > 1.25 * half
        stage.serve(scene, "next start", cache)
        stage.serve(scene, "start after that", cache)


def full_disk(stage: Stage, scene: Scene) -> None:
    """Only half of the plan fits on the disk; then there is space again."""
    with empty_cache() as cache:
        half = min(len(data) for _, data in stage.plans.values()) // 2
        stage.serve(scene, "full disk", cache, file_bytes=half)
        scene.flags["wrote on"] = _size(cache) > 1.25 * half
        stage.serve(scene, "next start", cache)


def _size(cache: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in plain_files(cache))


def two_starts(stage: Stage, scene: Scene) -> None:
    """Two servers start at the same time on one empty cache and receive their plans at the same time."""
    with empty_cache() as cache:
        builder = stage.builder()
        builder.gate.clear()
        with stage.server(cache, builder) as one, stage.server(cache, builder) as other:
            one.wait_build(READY_S)
            other.wait_build(1.0)  # a server that waits for the first one's plan asks later or never
            builder.gate.set()
            for process in (one, other):
                stage.try_server(scene, process, [1, 3])
        stage.serve(scene, "next start", cache)


def malformed(stage: Stage, scene: Scene) -> None:
    """Malformed requests among well-formed ones, from several clients, in a secret order."""
    bad = [(kind, make) for kind, make in _MALFORMED.items() for _ in range(_NOT_FINITE if kind in ("NaN", "infinity") else 1)]
    mixed: list[tuple[int, int, str, dict[str, np.ndarray]]] = []
    for first, feeds in stage.requests([1 + n % 4 for n in range(3 * len(bad))]):
        mixed.append((first, len(feeds[INPUT]), "", feeds))
    mixed += [(0, 0, kind, make(stage.features[: stage.used])) for kind, make in bad]
    _SECRET.shuffle(mixed)
    with empty_cache() as cache, stage.server(cache, stage.builder()) as process:
        if failed := process.wait_ready():
            scene.failed, scene.flags["empty"] = failed, process.empty
            return
        tickets = process.answers([feeds for *_, feeds in mixed], CLIENTS)
        for (first, rows, kind, _), ticket in zip(mixed, tickets, strict=True):
            scene.add(ticket, first, rows, "old", kind)


def _with(value: float, rows: np.ndarray) -> dict[str, np.ndarray]:
    """A request of a secret number of rows with one number, at a secret place, that is not finite."""
    chosen = rows[: _SECRET.randint(1, MOST_ROWS)].copy()
    chosen[_SECRET.randrange(len(chosen)), _SECRET.randrange(FEATURES)] = value
    return {INPUT: chosen}


_NOT_FINITE = 5  # requests with NaN, and with infinity: a server that looks at half of the columns passes one of 1024 times
_MALFORMED: dict[str, Callable[[np.ndarray], dict[str, np.ndarray]]] = {
    "float64 in place of float32": lambda rows: {INPUT: rows[:1].astype(np.float64)},
    "another type of number": lambda rows: {INPUT: rows[:1].astype(_SECRET.choice((np.float16, np.int32, np.int64, np.bool_)))},
    "bytes": lambda rows: {INPUT: rows[:1].view(np.uint8)},
    "too few features": lambda rows: {INPUT: rows[:1, : _SECRET.randint(1, FEATURES - 1)]},
    "too many features": lambda rows: {INPUT: np.resize(rows, (1, FEATURES + _SECRET.randint(1, FEATURES)))},
    "a dimension too few": lambda rows: {INPUT: rows[0]},
    "a dimension too many": lambda rows: {INPUT: rows[None, : _SECRET.randint(1, MOST_ROWS)]},
    "no rows": lambda rows: {INPUT: rows[:0]},
    "a row too many": lambda rows: {INPUT: np.resize(rows, (MOST_ROWS + 1, FEATURES))},
    "too many rows": lambda rows: {INPUT: np.resize(rows, (_SECRET.randint(MOST_ROWS + 2, 4096), FEATURES))},
    "no input": lambda rows: {},
    "an input of another name": lambda rows: {"amounts": rows[:1]},
    "an input too many": lambda rows: {INPUT: rows[:1], "amounts": rows[:1]},
    "NaN": lambda rows: _with(np.nan, rows),
    "infinity": lambda rows: _with(_SECRET.choice((-np.inf, np.inf)), rows),
}


def many_clients(stage: Stage, scene: Scene) -> None:
    """Clients of all sizes at once."""
    with empty_cache() as cache, stage.server(cache, stage.builder()) as process:
        stage.try_server(scene, process, [1 + (5 * n) % MOST_ROWS for n in range(64)], clients=16)


def engine_fails(stage: Stage, scene: Scene) -> None:
    """Each inference with one of three requests fails. The server cannot know them in advance.

    One comes among the requests of several clients and one alone, in a secret order with a third. Only a request that was in flight
    together with one of them may share its run, see `sharing`. After the one that came alone, the server must answer each request.
    """
    rounds = [1, _FAILURE_CLIENTS, _SECRET.choice((1, _FAILURE_CLIENTS))]
    _SECRET.shuffle(rounds)
    chosen = [number * _FAILURE_ROUND + _SECRET.randrange(_FAILURE_ROUND - _AFTER_FAILURE) for number in range(len(rounds))]
    failing = [row_digest(stage.features[stage.used + place]) for place in chosen]
    tickets: list[Ticket] = []
    with empty_cache() as cache, stage.server(cache, stage.builder(), failing=failing) as process:
        for clients in rounds:
            tickets += stage.try_server(scene, process, [1] * _FAILURE_ROUND, clients=clients)
    failed = [tickets[place] for place in chosen if place < len(tickets)]
    for place in sharing(tickets, failed):
        scene.replies[place].kind = WITH_A_FAILURE
    scene.flags["answered after all"] = any(ticket.status == "ok" for ticket in failed)


def sharing(tickets: Sequence[Ticket], failed: Sequence[Ticket]) -> set[int]:
    """The places of the requests that may have ended in an error because they shared a run with one of `failed`.

    A client sends its next request only after an answer, so it has at most one request in each run. A server that keeps a failed
    request for a while, and rejects whatever comes meanwhile, rejects several requests of one client.
    """
    places = {place for place, ticket in enumerate(tickets) if any(ticket is one for one in failed)}
    for one in failed:
        clients = {one.client}
        for place, ticket in enumerate(tickets):
            if ticket.status in RAISED and ticket.client not in clients and ticket.overlaps(one):
                clients.add(ticket.client)
                places.add(place)
    return places


def reload(stage: Stage, scene: Scene) -> None:
    """Two networks are rolled out in turn, and before one of these rollouts, which is secret, one that cannot be built.

    During each rollout a client asks. In the first one, in the one that must fail, and in a secret one, builds and loads are slow, so an
    answer that waits for either is late.
    """
    rollouts = [("new", "old")[number % 2] for number in range(_ROLLOUTS)]
    rollouts.insert(_SECRET.randrange(_ROLLOUTS), "unbuildable")
    slow = {rollouts.index("new"), rollouts.index("unbuildable"), _SECRET.randrange(2, len(rollouts))}
    serving = "old"
    with empty_cache() as cache:
        builder, delay = stage.builder(), cache.with_name("delay")
        delay.write_bytes(DELAY.pack(0.0))
        with stage.server(cache, builder, delay=str(delay)) as process:
            stage.try_server(scene, process, [1, 2])
            if scene.failed:
                return
            for number, model in enumerate(rollouts):
                possible = model != "unbuildable"
                builder.delay_s = _SECRET.uniform(*_DELAYS_S) if number in slow else 0.0
                delay.write_bytes(DELAY.pack(builder.delay_s))
                rollout = process.reload(stage.models[model])
                tickets = _asked_during(rollout, stage, scene, process, "either" if possible else serving)
                serving = model if possible else serving
                scene.flags["reload" if possible else "impossible reload"] = status = rollout.status
                if ended := status != "none" and (status == "ok" or not possible):
                    tickets += stage.try_server(scene, process, [1, 2, 16], model=serving, clients=2)
                longest_s = max((ticket.waited_s for ticket in tickets), default=0.0)
                scene.flags["longest wait"] = max(longest_s, scene.flags.get("longest wait", 0.0))
                if not ended:
                    return


def _asked_during(rollout: Ticket, stage: Stage, scene: Scene, process: ServerProcess, model: str) -> list[Ticket]:
    """The requests of a client that asks until a rollout is over. Its pauses grow, so that a long one does not use up the features."""
    tickets: list[Ticket] = []
    begin = time.monotonic()
    while not rollout.finished.is_set() and (took := time.monotonic() - begin) < READY_S:
        if asked := stage.try_server(scene, process, [1], model=model):
            tickets += asked
        rollout.finished.wait(max(_SHORTEST_PAUSE_S, took / 20) if asked else READY_S - took)
    return tickets


CACHE_SCENES: dict[str, Callable[[Stage, Scene], None]] = {
    "warm start": warm,
    "bits flipped": damaged(*map(flipped, range(_FLIPS))),
    "half a file": damaged(truncated),
    "empty files": damaged(emptied),
    "another version": another_version,
    "another device": another_device,
    "retrained network": retrained,
    "another recipe": another_recipe,
    "compiler killed": build_fails,
    "server killed": killed,
    "full disk": full_disk,
    "two at once": two_starts,
}
REQUEST_SCENES: dict[str, Callable[[Stage, Scene], None]] = {
    "malformed requests": malformed,
    "many clients": many_clients,
    "engine fails": engine_fails,
    "rollout": reload,
}
