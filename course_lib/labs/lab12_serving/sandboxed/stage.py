"""The program of lab 12's sandbox: it plays the scenes with a learner's server, and times it in turn with the given one.

Each server has its own process, see `host`. This one sends requests, receives answers and reads the clock. It does not have the
right scores: it reports the answers, and the judge compares them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import queue
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.processes import close_to_children, own_channels
from course_lib.engines.worker import wire
from course_lib.errors import WorkerDied
from course_lib.labs.lab12_serving.given import ANSWER_S, FEATURES, INPUT, MOST_ROWS, OUTPUT, Feeds
from course_lib.labs.lab12_serving.sandboxed import host

READY_S = 20.0  # longest wait for a start or a reload
CLIENTS, BURST, LONE = 16, 64, 4  # clients under load, and requests of a round: those of a burst, and those that come alone
FEWEST = 10  # rounds of a measurement, however slow
_MOST_BYTES = 1 << 20  # of one message from a server
_LONGEST_PAUSE_S = 0.03  # before a request that comes alone
_FLIPPED = 256  # bytes of a file
_SECRET = random.SystemRandom()
Request = tuple[int, Feeds]  # the number of its first row, and what is sent


class Lost(Exception):
    """What went wrong in a scene."""


@dataclass
class Reply:
    """The reply to a request.

    Attributes:
        status: ``"ok"``, ``"rejected"`` for a ValueError, ``"error"`` for another exception, ``"none"`` without an answer, and
            ``"asks"`` during a reload, before a build or a load.
        text: the error, or what the server asks for.
        runs, builds: inferences and builds of the server until then.
    """

    status: str
    text: str = ""
    runs: int = 0
    builds: int = 0
    latency_s: float = 0.0
    outputs: dict[str, np.ndarray] = field(default_factory=dict, repr=False)


@dataclass
class Stage:
    """What all scenes share.

    Attributes:
        plans: see `host.Start`.
        models: ONNX files by name. ``"new"`` has other weights than ``"old"``, and ``"unbuildable"`` has no plan.
        recipes: by name: ``"usual"``, then others that differ from it in one value each.
        features: fresh rows, float32 ``(n, FEATURES)``; each is sent once.
        version, device: of the engines here.
    """

    plans: Mapping[str, tuple[dict[str, Any], bytes]]
    models: Mapping[str, bytes]
    recipes: Mapping[str, Any]
    features: np.ndarray
    version: str
    device: str
    used: int = 0

    def requests(self, sizes: Sequence[int]) -> list[Request]:
        """Well-formed requests of these sizes."""
        made: list[Request] = []
        for rows in sizes:
            made.append((self.used, {INPUT: self.features[self.used : self.used + rows]}))
            self.used += rows
        return made


class Server:
    """A server in its own process, with a connection for each client and one for starts and reloads.

    Attributes:
        runs, builds: inferences so far, and how often it asked the compiler, by its replies.
    """

    def __init__(self, start: host.Start) -> None:
        self.model, self.runs, self.builds, self._alive = start.model, 0, 0, True
        self._pid, self._connections = host.fork(start, CLIENTS)
        self._control, *clients = self._connections
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for client in clients:
            self._idle.put(client)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's process and to those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)

    def end(self) -> None:
        """End the process."""
        self.signal(signal.SIGKILL)
        os.waitpid(self._pid, 0)
        for connection in self._connections:
            connection.close()

    def start(self) -> Reply:
        """The reply to the start."""
        return self._call(self._control, "start", limit_s=READY_S)

    def reload(self, meanwhile: Callable[[str], object]) -> Reply:
        """The reply to a reload. `meanwhile` is called before each build and load that it makes."""
        reply = self._call(self._control, "reload", limit_s=READY_S)
        while reply.status == "asks":
            meanwhile(reply.text)
            reply = self._call(self._control, "permit", limit_s=READY_S)
        return reply

    def answers(self, requests: Sequence[Feeds], clients: int) -> list[Reply]:
        """One reply for each request. Each of `clients` sends its next request when it has the previous answer."""
        with ThreadPoolExecutor(clients) as pool:
            replies = list(pool.map(self._answer, requests))
        self.runs = max(self.runs, *(reply.runs for reply in replies))
        self.builds = max(self.builds, *(reply.builds for reply in replies))
        return replies

    def _answer(self, feeds: Feeds) -> Reply:
        connection = self._idle.get()
        reply = self._call(connection, "answer", feeds)
        self._idle.put(connection)
        return reply

    def _call(self, connection: Any, what: str, feeds: Feeds | None = None, limit_s: float = ANSWER_S) -> Reply:
        """The reply to a message. Without one in time, the server is not asked again."""
        text, began = "", time.perf_counter()
        try:
            if self._alive:
                wire.send(connection.fileno(), {"do": what}, feeds)
                header, outputs = wire.receive(connection.fileno(), time.monotonic() + limit_s, _MOST_BYTES)
                return Reply(**header, latency_s=time.perf_counter() - began, outputs=outputs)
        except (OSError, EOFError, WorkerDied) as error:
            text = "" if isinstance(error, TimeoutError) else "its process died"
        self._alive = False
        return Reply("none", text)


@dataclass
class Scene:
    """A scene with a server and an empty cache, and what happened in it.

    Attributes:
        sources: the server's files, text by name.
        trouble: what went wrong; "" if the server survived.
        answers: of each answer, the request's first row, the model whose scores are right, and the scores.
    """

    name: str
    stage: Stage
    sources: Mapping[str, str]
    cache: Path
    trouble: str = ""
    answers: list[tuple[int, str, list[list[float]]]] = field(default_factory=list)

    @contextlib.contextmanager
    def server(self, *, model: str = "old", recipe: str = "usual", **options: Any) -> Iterator[Server]:
        """A server that is up. Leaving the block ends it.

        Args:
            model, recipe: names in the stage.
            options: other fields of `host.Start`.
        """
        stage = self.stage
        self.cache.mkdir(exist_ok=True)
        path = self.cache.with_suffix(".onnx")  # one name for whatever is deployed, as in production
        path.write_bytes(stage.models[model])
        start = host.Start(self.sources, path, stage.recipes[recipe], self.cache, stage.plans, stage.version, stage.device)
        server = Server(replace(start, **options))
        try:
            reply = server.start()
            if reply.status != "ok":
                raise Lost(f"a server did not start: {reply.text or f'it was not up after {READY_S:g} s'}")
            yield server
        finally:
            server.end()

    def ask(
        self, server: Server, sizes: Sequence[int], *, model: str = "old", clients: int = 1, may_fail: bool = False
    ) -> list[Reply]:
        """Send requests to a server, and note the answers. Raises `Lost` if there are none.

        Args:
            model: whose scores are right.
            may_fail: an exception is a valid answer, too.
        """
        requests = self.stage.requests(sizes)
        replies = server.answers([feeds for _, feeds in requests], clients)
        lost = [reply for request, reply in zip(requests, replies, strict=True) if not self.noted(request, reply, model)]
        if lost := [reply for reply in lost if reply.status == "none" or not may_fail]:
            why = lost[0].text or f"no answer came within {ANSWER_S:g} s"
            raise Lost(f"{len(lost)} of {len(replies)} requests were not answered: {why}")
        return replies

    def noted(self, request: Request, reply: Reply, model: str = "old") -> bool:
        """Note an answer. False if the reply is not one."""
        if reply.status == "ok":
            self.answers.append((request[0], model, reply.outputs[OUTPUT].tolist()))
        return reply.status == "ok"

    def start(self, name: str, *, builds: bool, because: str = "no plan could be in the cache", **options: Any) -> None:
        """Start a server, send three requests, and end it. Raises `Lost` if it did not answer.

        Args:
            name: of the start, for messages.
            builds: whether it has to ask the compiler, `because` the cache has no valid plan for it. If not, it must not ask.
        """
        with self.server(**options) as server:
            self.ask(server, (1, 3, 16), model=options.get("model", "old"))
        if server.builds and not builds:
            raise Lost(f"the {name} asked the compiler again, although the plan had been built before")
        if builds and not server.builds:
            raise Lost(f"the {name} did not ask the compiler, although {because}")


# ---- the scenes of the cache


def warm_start(scene: Scene) -> None:
    """Start on an empty cache, then on the same cache."""
    scene.start("first start", builds=True)
    scene.start("second start", builds=False)


def damaged(scene: Scene) -> None:
    """Every file of the cache has bits flipped, as on a bad disk, and then is cut in half, as on a full one."""
    scene.start("first start", builds=True)
    for name, harm in (("flipped bits", flipped), ("half a file", lambda content: content[: len(content) // 2])):
        files = [file for file in scene.cache.rglob("*") if file.is_file() and file.stat().st_size]
        if not files:
            raise Lost("the cache was empty after a start")
        for file in files:
            file.write_bytes(harm(file.read_bytes()))
        scene.start(f"start with {name}", builds=True, because="every file of the cache was damaged")
    scene.start("start after that", builds=False)


def flipped(content: bytes) -> bytes:
    """Bits are flipped at a secret place in the middle, as on a bad disk: in a plan, that is among the weights."""
    begin = _SECRET.randrange(len(content) // 4, 3 * len(content) // 4 + 1)
    harmed = bytes(byte ^ _SECRET.randrange(1, 256) for byte in content[begin : begin + _FLIPPED])
    return content[:begin] + harmed + content[begin + _FLIPPED :]


def others(scene: Scene, changes: Mapping[str, Sequence[str]]) -> None:
    """Starts with other versions, devices, networks or recipes fill the cache. Each needs its own plan."""
    for what, values in changes.items():
        for value in values:
            scene.start(f"start with another {what}", builds=True, because="it needs its own plan", **{what: value})
    scene.start("start after it", builds=True, because="it needs its own plan")


def close_to(text: str) -> list[str]:
    """The text with another digit in place of its first and of its last one."""
    places = [place for place, letter in enumerate(text) if letter.isdigit()]
    digits = {place: _SECRET.choice([one for one in "123456789" if one != text[place]]) for place in (places[0], places[-1])}
    return [f"{text[:place]}{digit}{text[place + 1 :]}" for place, digit in digits.items()]


# ---- the scenes of requests


def malformed(scene: Scene) -> None:
    """Malformed requests among well-formed ones, from several clients, in a secret order."""
    ((_, feeds),) = scene.stage.requests([MOST_ROWS])
    bad = [(kind, (0, make(feeds[INPUT]))) for kind, make in _MALFORMED.items()]
    good = [("", request) for request in scene.stage.requests([1 + n % 4 for n in range(2 * len(bad))])]
    mixed = _SECRET.sample([*bad, *good], len(bad) + len(good))
    with scene.server() as server:
        replies = server.answers([feeds for _, (_, feeds) in mixed], CLIENTS // 2)
    wrong = set()
    for (kind, request), reply in zip(mixed, replies, strict=True):
        if reply.status != "rejected" if kind else not scene.noted(request, reply):
            got = {"ok": "was answered", "none": "got no answer"}.get(reply.status, f"ended in {reply.text}")
            wrong.add(f"{kind or 'a well-formed request'} {got}")
    if wrong:
        listed = "; ".join(sorted(wrong))
        raise Lost(f"expected a ValueError for each malformed request, and scores for the others: {listed}")


_MALFORMED: dict[str, Callable[[np.ndarray], dict[str, np.ndarray]]] = {
    "float64": lambda rows: {INPUT: rows[:1].astype(np.float64)},
    "too few features": lambda rows: {INPUT: rows[:1, : _SECRET.randint(1, FEATURES - 1)]},
    "a dimension too few": lambda rows: {INPUT: rows[0]},
    "no rows": lambda rows: {INPUT: rows[:0]},
    "a row too many": lambda rows: {INPUT: np.resize(rows, (MOST_ROWS + 1, FEATURES))},
    "another name": lambda rows: {"amounts": rows[:1]},
    "NaN": lambda rows: {INPUT: with_one(rows[:1], np.nan)},
    "infinity": lambda rows: {INPUT: with_one(rows[:1], np.inf)},
}


def with_one(row: np.ndarray, value: float) -> np.ndarray:
    """The row with a value at a secret place."""
    return np.where(np.arange(FEATURES) == _SECRET.randrange(FEATURES), np.float32(value), row)


def many_clients(scene: Scene) -> None:
    """Clients with requests of all sizes. Each run takes two milliseconds longer, so threads that share something meet."""
    with scene.server(run_s=0.002) as server:
        scene.ask(server, [1 + (5 * n) % MOST_ROWS for n in range(64)], clients=CLIENTS)


def engine_fails(scene: Scene) -> None:
    """Each run with one of two requests fails: one comes alone, and one with seven others. The server cannot know them in advance."""
    alone, among = _SECRET.randrange(1, 5), _SECRET.randrange(8)
    rows = scene.stage.features[scene.stage.used :]
    with scene.server(failing=[host.row_digest(rows[alone]), host.row_digest(rows[8 + among])]) as server:
        replies = [scene.ask(server, [1], may_fail=number == alone)[0] for number in range(8)]
        together = scene.ask(server, [1] * 8, clients=8, may_fail=True)
        if "ok" in (replies[alone].status, together[among].status):
            raise Lost("a request was answered although every run of the engine with it failed")
        scene.ask(server, [1] * 8, clients=4)


def rollout(scene: Scene) -> None:
    """Another network is rolled out and back, and at a secret time one that cannot be built.

    Before each build and each load a request is sent. The old network must answer it, because the new one is not there yet.
    """
    models, serving = ["new", "old"], "old"
    models.insert(_SECRET.randrange(3), "unbuildable")

    def ask_meanwhile(what: str) -> None:
        try:
            scene.ask(server, [1], model=serving)
        except Lost as lost:
            raise Lost(f"a request had to wait for the {what} of the new network: {lost}") from None

    with scene.server() as server:
        scene.ask(server, [1])  # a server may build at its first request
        for model in models:
            server.model.write_bytes(scene.stage.models[model])
            reply = server.reload(ask_meanwhile)
            if reply.status == "none":
                raise Lost(reply.text or f"reload did not return within {READY_S:g} s")
            if model == "unbuildable" and reply.status == "ok":
                raise Lost("reload did not raise for a network that could not be built")
            if model != "unbuildable" and reply.status != "ok":
                raise Lost(f"reload raised for a network that can be built: {reply.text}")
            serving = serving if model == "unbuildable" else model
            scene.ask(server, [1, 2, 16], model=serving, clients=2)


CACHE_SCENES: dict[str, Callable[[Scene], None]] = {
    "warm start": warm_start,
    "damaged plan": damaged,
    "another version or device": lambda scene: others(
        scene, {"version": close_to(scene.stage.version), "device": close_to(scene.stage.device.replace("cpu", "sm90"))}
    ),
    "another network or recipe": lambda scene: others(scene, {"model": ["new"], "recipe": [*scene.stage.recipes][1:]}),
}
REQUEST_SCENES: dict[str, Callable[[Scene], None]] = {
    "malformed requests": malformed,
    "many clients": many_clients,
    "engine fails": engine_fails,
    "rollout": rollout,
}


def play(stage: Stage, sources: Mapping[str, str], scenes: Sequence[str], time_limit_s: float) -> dict[str, Any]:
    """What happened in each scene. Those for which no time is left are not played."""
    deadline, played = time.monotonic() + time_limit_s, []
    for name in scenes:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            played.append(scene := Scene(name, stage, sources, Path(folder, "cache")))
            try:
                if time.monotonic() > deadline:
                    raise Lost("not tried: the scenes before it took all the time")
                (CACHE_SCENES | REQUEST_SCENES)[name](scene)
            except Lost as lost:
                scene.trouble = str(lost)
            except OSError as error:  # it can remove files and end processes that a scene needs
                scene.trouble = f"the scene could not be played: {error}"[:200]
    return {"scenes": [{"scene": scene.name, "trouble": scene.trouble, "answers": scene.answers} for scene in played]}


# ---- the load


def load(stage: Stage, given: Mapping[str, str], yours: Mapping[str, str], time_limit_s: float, seed: int) -> dict[str, Any]:
    """Time two servers: in each round both get the same requests, in a random order and alone on the machine.

    The learner's server starts last, and is stopped while the other one is timed. Its answers are kept.
    """
    deadline, rng = time.monotonic() + time_limit_s, np.random.default_rng(seed)
    rounds: list[dict[str, Any]] = []
    who = "given"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sources = {"given": given, "yours": yours}
        scenes = {name: Scene(name, stage, sources[name], Path(folder, name)) for name in sources}
        try:
            with scenes["given"].server() as other:
                who = "yours"
                with scenes["yours"].server() as own:
                    servers = {"given": other, "yours": own}
                    while stage.used < len(stage.features) and (len(rounds) < FEWEST or time.monotonic() < deadline):
                        first, pauses_s, taken = stage.used, rng.uniform(0, _LONGEST_PAUSE_S, LONE).tolist(), {}
                        for who in rng.permutation(["given", "yours"]).tolist():
                            own.signal(signal.SIGCONT if who == "yours" else signal.SIGSTOP)
                            stage.used = first
                            taken[who] = _round(servers[who], scenes[who], pauses_s)
                        rounds.append(taken)
        except Lost as lost:
            return {"who": who, "failed": str(lost)}
    return {"rounds": rounds, "answers": scenes["yours"].answers}


def _round(server: Server, scene: Scene, pauses_s: Sequence[float]) -> dict[str, Any]:
    """Requests that come alone, each after its pause, and a burst from many clients: seconds, and the runs of the burst."""
    lone_s = []
    for pause_s in pauses_s:
        time.sleep(pause_s)
        lone_s.append(scene.ask(server, [1])[0].latency_s)
    before, started = server.runs, time.perf_counter()
    scene.ask(server, [1] * BURST, clients=CLIENTS)
    return {"lone_s": lone_s, "burst_s": time.perf_counter() - started, "runs": server.runs - before}


def serve() -> None:
    """Two requests on standard input: ``prepare`` with all that does not come from a learner, then ``play`` or ``load``."""
    close_to_children()  # servers cannot look into this process, or use its output
    reader, writer = own_channels()  # servers print
    prepared, arrays = wire.receive(reader)
    with contextlib.suppress(ImportError):
        importlib.import_module(prepared["backend"])  # once, for all servers
    models = {name: arrays[f"model {name}"].tobytes() for name in prepared["models"]}
    plans = {
        hashlib.sha256(models[name]).hexdigest(): (summary, arrays[f"plan {name}"].tobytes())
        for name, summary in prepared["plans"].items()
    }
    shared = {key: prepared[key] for key in ("recipes", "version", "device")}
    stage = Stage(plans, models, features=arrays["features"], **shared)
    wire.send(writer, {})
    request, _ = wire.receive(reader)
    wire.send(writer, (play if request.pop("do") == "play" else load)(stage, **request))
