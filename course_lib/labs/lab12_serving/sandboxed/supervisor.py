"""The supervisor of lab 12: in one confined process it plays the scenes with a learner's server and times it together with two others.

It does not hold learner code or correct answers. It reports what was sent and received, and the judge compares.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np

from course_lib.engines.worker import wire
from course_lib.labs.lab12_serving.sandboxed import own_namespace
from course_lib.labs.lab12_serving.sandboxed.isolation import descendants, frozen, keep_apart
from course_lib.labs.lab12_serving.sandboxed.scenes import CACHE_SCENES, REQUEST_SCENES
from course_lib.labs.lab12_serving.sandboxed.server_process import NOT_TRIED, Nursery, ServerProcess, Ticket, plan_key
from course_lib.labs.lab12_serving.sandboxed.stage import Scene, Stage, empty_cache

CLIENTS, BURST, LONE = 16, 64, 4  # requests at once under load; of one burst; one after the other: the latter two on average
FEWEST = 10  # rounds, however slow
_SHORTEST_S, _LONGEST_S = 0.001, 0.03  # pauses before every other request that comes alone


def main() -> None:
    """One question on standard input, one answer on standard output."""
    keep_apart()
    question, arrays = wire.receive(0)
    if question["apart"] and (reason := own_namespace.works()):
        wire.send(1, {"unable": reason, "token": question["token"]})
        return
    with tempfile.TemporaryDirectory() as folder, Nursery(question["interpreter"], question["backend"]) as nursery:
        if reason := nursery.failed():
            wire.send(1, {"no servers": reason, "token": question["token"]})
            return
        models = {}
        for name in question["models"]:
            models[name] = Path(folder, f"{name}.onnx")
            models[name].write_bytes(arrays[f"model {name}"].tobytes())
        plans = {
            plan_key(row["model"], row["recipe"]): (row["plan"], arrays[f"plan {n}"]) for n, row in enumerate(question["plans"])
        }
        shared = {key: question[key] for key in ("recipes", "version", "device", "apart")}
        stages = {
            name: Stage(nursery, sources, plans, models, features=arrays["features"], **shared)
            for name, sources in question["servers"].items()
        }
        if question["do"] == "scenes":
            (stage,) = stages.values()
            header, told = play(stage, question["scenes"], question["time_limit_s"])
        else:
            header, told = load(stages, question["seed"], question["time_limit_s"])
        wire.send(1, {**header, "token": question["token"]}, told)


def play(stage: Stage, names: list[str], time_limit_s: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Every scene's record; those for which no time is left are not played."""
    deadline = time.monotonic() + time_limit_s
    scenes = []
    for name in names:
        scene = Scene(name)
        if time.monotonic() > deadline:
            scene.failed = NOT_TRIED
        else:
            try:
                (CACHE_SCENES | REQUEST_SCENES)[name](stage, scene)
            except (OSError, struct.error) as error:  # it can remove files and end processes that a scene needs
                scene.failed = scene.failed or f"the scene could not be played: {error}"[:200]
        scenes.append(scene)
    return _told(scenes)


def load(stages: dict[str, Stage], seed: int, time_limit_s: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Bursts of requests from many clients and single requests, for all servers in turn, each alone on the machine.

    The first server is the learner's. Its answers are kept, and its processes are stopped while the others are timed.
    This process measures the times, without any server's code, and never sends a request before its time.
    """
    deadline = time.monotonic() + time_limit_s
    scene, rng = Scene("load"), np.random.default_rng(seed)
    rounds: list[dict[str, _Taken]] = []
    learners, yours = next(iter(stages.items()))
    with ExitStack() as stack:
        processes: dict[str, ServerProcess] = {}
        for name, stage in stages.items():
            cache = stack.enter_context(empty_cache())
            processes[name] = stack.enter_context(stage.server(cache, stage.builder()))
            if failed := processes[name].wait_ready():
                return {"failed": failed, "who": name, "rounds": [], "scenes": []}, {}
        while len(rounds) < FEWEST or time.monotonic() < deadline:
            turn = _drawn(rng)
            if yours.used + turn.requests > len(yours.features):
                break
            requests = yours.requests([1] * turn.requests)
            taken: dict[str, _Taken] = {}
            for name in rng.permutation(list(processes)):
                tickets, taken[name] = _round(processes[name], [feeds for _, feeds in requests], turn, mine=name == learners)
                if name == learners:
                    for (first, _), ticket in zip(requests, tickets, strict=True):
                        scene.add(ticket, first, 1, "old")
            rounds.append(taken)
            if any(reply.status != "ok" for reply in scene.replies):
                break  # a server that fails has no speed
    header, arrays = _told([scene])
    return {**header, "failed": "", "who": "", "rounds": rounds}, arrays


class _Turn(NamedTuple):
    """What each server receives in one round: single requests, a burst, single requests. A pause precedes each single request.

    All of it is secret. A server that counts requests, or knows how long it was idle, cannot tell a single request from a burst's first.
    """

    before: list[float]
    burst: int
    after: list[float]

    @property
    def requests(self) -> int:
        """Number of all requests."""
        return len(self.before) + self.burst + len(self.after)


def _drawn(rng: np.random.Generator) -> _Turn:
    """A turn. The number of its single requests is geometric: how many have come says nothing about how many will come."""
    lone = int(rng.geometric(1 / (LONE + 1))) - 1
    pauses = np.where(
        rng.random(lone) < 0.5, np.exp(rng.uniform(math.log(_SHORTEST_S), math.log(_LONGEST_S), lone)), 0.0
    ).tolist()
    before = int(rng.choice((0, lone)))
    return _Turn(pauses[:before], int(rng.integers(BURST * 3 // 4, BURST * 5 // 4 + 1)), pauses[before:])


class _Taken(TypedDict):
    """Seconds of one server's turn: the whole burst, each single request, and each request of the burst."""

    burst_s: float
    lone_s: list[float]
    latencies_s: list[float]


def _round(
    process: ServerProcess, feeds: list[dict[str, np.ndarray]], turn: _Turn, *, mine: bool
) -> tuple[list[Ticket], _Taken]:
    """One server's turn. All of the learner's processes are stopped during the turns of the others."""
    burst_from, burst_to = len(turn.before), len(turn.before) + turn.burst
    with ExitStack() as stack:
        if not mine:
            stack.enter_context(frozen(but={process.pid} | descendants(process.pid)))
        before = _one_by_one(process, feeds[:burst_from], turn.before)
        started = time.perf_counter()
        burst = process.answers(feeds[burst_from:burst_to], clients=CLIENTS)
        took = time.perf_counter() - started
        after = _one_by_one(process, feeds[burst_to:], turn.after)
    taken: _Taken = {
        "burst_s": took,
        "lone_s": [ticket.latency_s for ticket in (*before, *after)],
        "latencies_s": [ticket.latency_s for ticket in burst],
    }
    return [*before, *burst, *after], taken


def _one_by_one(process: ServerProcess, feeds: list[dict[str, np.ndarray]], pauses_s: list[float]) -> list[Ticket]:
    """Single requests, each after its pause. Those after an unanswered one are not sent."""
    tickets: list[Ticket] = []
    for one, pause_s in zip(feeds, pauses_s, strict=True):
        time.sleep(pause_s)
        tickets += process.answers([one], clients=1)
        if tickets[-1].status == "none":
            break
    return tickets + [Ticket() for _ in feeds[len(tickets) :]]


def _told(scenes: list[Scene]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    rows = []
    arrays = {}
    for number, scene in enumerate(scenes):
        row = {key: value for key, value in vars(scene).items() if key not in ("scores", "replies")}
        rows.append({**row, "replies": [dataclasses.asdict(reply) for reply in scene.replies]})
        if scene.scores:
            arrays[f"scores {number}"] = np.concatenate(scene.scores)
    return {"scenes": rows}, arrays


if __name__ == "__main__":
    sys.exit("the supervisor is started by course_lib.labs.lab12_serving.judge.load_test")
