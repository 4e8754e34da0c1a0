"""The program of lab 12's sandbox: it plays the scenes with a learner's server, and times it in turn with the given one.

Each server has its own process, see `host`. This one sends requests, receives answers and reads the clock. It does not have the
right scores: it reports the answers, and the judge compares them.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from course_lib.engines.worker import wire
from course_lib.errors import WorkerDied
from course_lib.labs.lab12_serving import given
from course_lib.labs.lab12_serving.given import ANSWER_S, FEATURES, INPUT, MOST_ROWS, OUTPUT, Feeds
from course_lib.labs.lab12_serving.sandboxed import host

READY_S = 20.0  # longest wait for a start or a reload
CLIENTS, BURST, LONE = 16, 64, 4  # clients under load, and requests of a round: those of a burst, and those that come alone
FEWEST = 10  # rounds of a measurement, however slow
_MOST_BYTES = 1 << 20  # of one message from a server
_LONGEST_PAUSE_S = 0.03  # before a request that comes alone
_FLIPPED = 256  # bytes of a file
_SET_DUMPABLE = 4  # of prctl(2)
_SECRET = random.SystemRandom()
Request = tuple[int, Feeds]  # the number of its first row, and what is sent


class Lost(Exception):
    """What went wrong in a scene."""


@dataclass
class Reply:
    """The answer to a message.

    Attributes:
        status: ``"ok"``, ``"rejected"`` for a ValueError, ``"error"`` for another exception, ``"none"`` without an answer.
        runs: inferences of the server's engines until then.
    """

    status: str = "none"
    text: str = ""
    runs: int = 0
    latency_s: float = 0.0
    outputs: dict[str, np.ndarray] = field(default_factory=dict, repr=False)


@dataclass
class Stage:
    """What all scenes with a server share.

    Attributes:
        sources: the server's files, text by name.
        plans: by `plan_key`. A model or a recipe without a plan cannot be built.
        models: ONNX files by name. ``"new"`` has other weights than ``"old"``, and ``"unbuildable"`` has no plan.
        recipes: by name: ``"usual"``, and others that differ from it in one value each.
        features: fresh rows, float32 ``(n, FEATURES)``; each is sent once.
        version, device: of the engines here.
    """

    sources: Mapping[str, str]
    plans: Mapping[str, tuple[dict[str, Any], np.ndarray]]
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


def plan_key(model_sha256: str, recipe: Any) -> str:
    """The key of `Stage.plans`."""
    return hashlib.sha256(f"{model_sha256}{json.dumps(recipe, sort_keys=True)}".encode()).hexdigest()


class Server:
    """A server in its own process. Leaving the block ends the process.

    Attributes:
        builds: how often it asked the compiler.
        permit: called with what the server asks for, a build or a load.
    """

    def __init__(self, stage: Stage, cache: Path, *, model: str = "old", recipe: str = "usual", **options: Any) -> None:
        """Start the process and the server.

        Args:
            model, recipe: names in the stage.
            options: ``version`` and ``device``, if they are others than those of the stage. Each run with one of the ``failing``
                digests of rows fails, and each run takes ``run_s`` longer.
        """
        self.stage, self.builds, self.alive = stage, 0, True
        self.replies: dict[int, Reply] = {}
        self.sent: dict[int, float] = {}
        self.permit: Callable[[dict[str, Any]], object] = self.grant
        self.model = cache.with_name("scorer.onnx")  # one name for whatever is deployed, as in production
        self.model.write_bytes(stage.models[model])
        begin = {"version": stage.version, "device": stage.device, "sources": stage.sources, "recipe": stage.recipes[recipe]}
        begin |= {"cache": str(cache), "model": str(self.model), "failing": [], "run_s": 0.0}
        self.begin = begin | options
        self.pid, self.connection = host.start()
        self.connection.setblocking(False)
        self.starting = self.send({"do": "start", **self.begin})

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.signal(signal.SIGKILL)
        self.connection.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server's process and to those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def send(self, header: Mapping[str, Any], feeds: Feeds | None = None) -> int:
        """Send a message. Returns its number, for `wait`."""
        number = len(self.sent) + 1
        self.sent[number] = time.perf_counter()
        self._write({**header, "id": number}, feeds)
        return number

    def grant(self, asked: Mapping[str, Any]) -> None:
        """Give the server the plan that it asked for, or the permission to load one."""
        summary, data = self.stage.plans.get(plan_key(str(asked.get("model")), asked.get("recipe")), (None, None))
        reply, arrays = {"do": "permit", "id": asked["id"], "error": ""}, {}
        if asked["do"] == "build" and data is None:
            reply["error"] = "the compiler rejects this model or recipe"
        elif data is not None:
            label = {key: self.begin[key] for key in ("version", "device")}
            arrays["plan"] = np.frombuffer(given.packed({**label, "plan": summary}, data.tobytes()), np.uint8)
        self._write(reply, arrays)

    def wait(self, numbers: Sequence[int], limit_s: float) -> list[Reply]:
        """The replies to these messages. Those that did not come in time have the status ``"none"``."""
        until = time.monotonic() + limit_s
        while any(number not in self.replies for number in numbers) and self._receive(until):
            pass
        return [self.replies.get(number, Reply()) for number in numbers]

    def ready(self) -> Reply:
        """The reply to the start."""
        (reply,) = self.wait([self.starting], READY_S)
        return reply if reply.status != "none" or self.alive else Reply("error", "its process died")

    def answers(self, requests: Sequence[Feeds], clients: int) -> list[Reply]:
        """One reply for each request. Each of `clients` sends its next request when it has the previous answer."""
        numbers: list[int] = []
        waiting: set[int] = set()
        until = time.monotonic() + ANSWER_S
        while len(numbers) < len(requests) or waiting:
            while len(waiting) < clients and len(numbers) < len(requests):
                numbers.append(self.send({"do": "answer"}, requests[len(numbers)]))
                waiting.add(numbers[-1])
            if not self._receive(until):
                break
            if answered := waiting & self.replies.keys():
                waiting -= answered
                until = time.monotonic() + ANSWER_S
        return [self.replies.get(number, Reply()) for number in numbers] + [Reply() for _ in requests[len(numbers) :]]

    def _receive(self, until: float) -> bool:
        """Read one message. False if the time is over or the process has ended."""
        try:
            if not self.alive:
                return False
            header, arrays = wire.receive(self.connection.fileno(), max(until, time.monotonic() + 0.001), _MOST_BYTES)
            latency_s = time.perf_counter() - self.sent.get(header["id"], 0.0)
            if header["do"] in ("build", "load"):
                self.builds += header["do"] == "build"
            else:
                status, text = str(header["status"]), str(header.get("text", ""))[:300]
                self.replies[header["id"]] = Reply(status, text, int(header["runs"]), latency_s, arrays)
                return True
        except TimeoutError:
            return False
        except (EOFError, OSError, WorkerDied, KeyError, TypeError, ValueError):  # it may say anything
            self.alive = False
            return False
        self.permit(header)
        return True

    def _write(self, header: Mapping[str, Any], arrays: Feeds | None) -> None:
        try:
            wire.send(self.connection.fileno(), header, arrays, time.monotonic() + ANSWER_S)
        except (OSError, TimeoutError):
            self.alive = False


@dataclass
class Scene:
    """A scene with a server and an empty cache, and what happened in it.

    Attributes:
        trouble: what went wrong; "" if the server survived.
        answered: of each answer, the request's first row, its number of rows, and the model whose scores are right.
        scores: of each answer.
    """

    name: str
    stage: Stage
    cache: Path
    trouble: str = ""
    answered: list[tuple[int, int, str]] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)

    def server(self, **options: Any) -> Server:
        """Start a server on the cache; see `Server`."""
        return Server(self.stage, self.cache, **options)

    def ready(self, server: Server) -> None:
        """Wait until a server is up, or raise `Lost`."""
        reply = server.ready()
        if reply.status != "ok":
            why = f"it was not up after {READY_S:g} s" if reply.status == "none" else reply.text
            raise Lost(f"a server did not start: {why}")

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
        """Note an answer. False if there are no scores in it."""
        first, feeds = request
        if reply.status != "ok" or given.misshapen(reply.outputs, len(feeds[INPUT])):
            return False
        self.answered.append((first, len(feeds[INPUT]), model))
        self.scores.append(reply.outputs[OUTPUT])
        return True

    def start(self, name: str, *, builds: bool, because: str = "no plan could be in the cache", **options: Any) -> None:
        """Start a server, send three requests, and end it. Raises `Lost` if it did not answer.

        Args:
            name: of the start, for messages.
            builds: whether it has to ask the compiler, `because` the cache has no valid plan for it. If not, it must not ask.
        """
        with self.server(**options) as server:
            self.ready(server)
            self.ask(server, (1, 3, 16), model=options.get("model", "old"))
        if server.builds and not builds:
            raise Lost(f"the {name} asked the compiler again, although the plan had been built before")
        if builds and not server.builds:
            raise Lost(f"the {name} did not ask the compiler, although {because}")


# ---- the scenes of the cache


def warm_start(scene: Scene) -> None:
    """Start on an empty cache, then twice on the same cache."""
    scene.start("first start", builds=True)
    scene.start("second start", builds=False)
    scene.start("third start", builds=False)


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


def others(scene: Scene, changes: Callable[[Stage], Mapping[str, Sequence[str]]]) -> None:
    """Starts with other versions, devices, networks or recipes fill the cache. Each needs its own plan."""
    for what, values in changes(scene.stage).items():
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
        scene.ready(server)
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
    "NaN": lambda rows: {INPUT: np.where(np.arange(FEATURES) == _SECRET.randrange(FEATURES), np.float32(np.nan), rows[:1])},
    "infinity": lambda rows: {
        INPUT: np.where(np.arange(FEATURES) == _SECRET.randrange(FEATURES), np.float32(np.inf), rows[:1])
    },
}


def many_clients(scene: Scene) -> None:
    """Clients with requests of all sizes. Each run takes two milliseconds longer, so threads that share something meet."""
    with scene.server(run_s=0.002) as server:
        scene.ready(server)
        scene.ask(server, [1 + (5 * n) % MOST_ROWS for n in range(64)], clients=CLIENTS)


def engine_fails(scene: Scene) -> None:
    """Each run with one of two requests fails: one comes alone, and one with seven others. The server cannot know them in advance."""
    alone, among = _SECRET.randrange(1, 5), _SECRET.randrange(8)
    rows = scene.stage.features[scene.stage.used :]
    with scene.server(failing=[host.row_digest(rows[alone]), host.row_digest(rows[8 + among])]) as server:
        scene.ready(server)
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

    def ask_meanwhile(asked: dict[str, Any]) -> None:
        try:
            scene.ask(server, [1], model=serving)
        except Lost as lost:
            raise Lost(f"a request had to wait for the {asked['do']} of the new network: {lost}") from None
        server.grant(asked)

    with scene.server() as server:
        scene.ready(server)
        for model in models:
            server.model.write_bytes(scene.stage.models[model])
            server.permit = ask_meanwhile
            (reply,) = server.wait([server.send({"do": "reload", "model": str(server.model)})], READY_S)
            server.permit = server.grant
            if reply.status == "none":
                raise Lost(f"reload did not return within {READY_S:g} s")
            if model == "unbuildable" and reply.status == "ok":
                raise Lost("reload did not raise for a network that could not be built")
            if model != "unbuildable" and reply.status != "ok":
                raise Lost(f"reload raised for a network that can be built: {reply.text}")
            serving = serving if model == "unbuildable" else model
            scene.ask(server, [1, 2, 16], model=serving, clients=2)


CACHE_SCENES: dict[str, Callable[[Scene], None]] = {
    "warm start": warm_start,
    "damaged plan": damaged,
    "another version or device": partial(
        others,
        changes=lambda stage: {"version": close_to(stage.version), "device": close_to(stage.device.replace("cpu", "sm90"))},
    ),
    "another network or recipe": partial(
        others, changes=lambda stage: {"model": ["new"], "recipe": [name for name in stage.recipes if name != "usual"]}
    ),
}
REQUEST_SCENES: dict[str, Callable[[Scene], None]] = {
    "malformed requests": malformed,
    "many clients": many_clients,
    "engine fails": engine_fails,
    "rollout": rollout,
}


def play(stage: Stage, names: Sequence[str], time_limit_s: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Every scene's record; those for which no time is left are not played."""
    deadline, scenes = time.monotonic() + time_limit_s, []
    for name in names:
        with empty_cache() as cache:
            scenes.append(scene := Scene(name, stage, cache))
            try:
                if time.monotonic() > deadline:
                    raise Lost("not tried: the scenes before it took all the time")
                (CACHE_SCENES | REQUEST_SCENES)[name](scene)
            except Lost as lost:
                scene.trouble = str(lost)
            except OSError as error:  # it can remove files and end processes that a scene needs
                scene.trouble = f"the scene could not be played: {error}"[:200]
    return recorded(scenes)


@contextlib.contextmanager
def empty_cache() -> Iterator[Path]:
    """An empty folder for a cache."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (cache := Path(folder, "cache")).mkdir()
        yield cache


def recorded(scenes: Sequence[Scene]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Scenes as a header and arrays."""
    rows = [{key: getattr(scene, key) for key in ("name", "trouble", "answered")} for scene in scenes]
    return {"scenes": rows}, {f"scores {n}": np.concatenate(scene.scores) for n, scene in enumerate(scenes) if scene.scores}


# ---- the load


def load(given: Stage, yours: Stage, seed: int, time_limit_s: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Time two servers: in each round both get the same requests, in a random order and alone on the machine.

    The learner's server starts last, and is stopped while the other one is timed. Its answers are kept.
    """
    deadline, rng = time.monotonic() + time_limit_s, np.random.default_rng(seed)
    rounds: list[dict[str, Any]] = []
    who = "given"
    with empty_cache() as its, empty_cache() as mine:
        scenes = {"given": Scene("load", given, its), "yours": Scene("load", yours, mine)}
        try:
            with scenes["given"].server() as other:
                scenes["given"].ready(other)
                who = "yours"
                with scenes["yours"].server() as own:
                    scenes["yours"].ready(own)
                    while (len(rounds) < FEWEST or time.monotonic() < deadline) and yours.used + BURST + LONE <= len(
                        yours.features
                    ):
                        first, burst_first = yours.used, bool(rng.random() < 0.5)
                        pauses_s, taken = rng.uniform(0, _LONGEST_PAUSE_S, LONE).tolist(), {}
                        for who in rng.permutation(["given", "yours"]).tolist():
                            own.signal(signal.SIGCONT if who == "yours" else signal.SIGSTOP)
                            scenes[who].stage.used = first
                            taken[who] = _round(own if who == "yours" else other, scenes[who], pauses_s, burst_first)
                        rounds.append(taken)
        except Lost as lost:
            return {"failed": str(lost), "who": who}, {}
    header, arrays = recorded([scenes["yours"]])
    return {**header, "failed": "", "who": "", "rounds": rounds}, arrays


def _round(server: Server, scene: Scene, pauses_s: Sequence[float], burst_first: bool) -> dict[str, Any]:
    """A burst from many clients, and requests that come alone, each after its pause: seconds, and the runs of the burst."""
    taken: dict[str, Any] = {"lone_s": []}
    for burst in (burst_first, not burst_first):
        if burst:
            before, started = max((reply.runs for reply in server.replies.values()), default=0), time.perf_counter()
            replies = scene.ask(server, [1] * BURST, clients=CLIENTS)
            taken |= {"burst_s": time.perf_counter() - started, "runs": max(reply.runs for reply in replies) - before}
        else:
            for pause_s in pauses_s:
                time.sleep(pause_s)
                taken["lone_s"].append(scene.ask(server, [1])[0].latency_s)
    return taken


def main() -> None:
    """One question on standard input, one answer on standard output."""
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps servers
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # servers cannot look into this process, or use its output
    question, arrays = wire.receive(0)
    plans = {row["key"]: (row["plan"], arrays[f"plan {number}"]) for number, row in enumerate(question["plans"])}
    models = {name: arrays[f"model {name}"].tobytes() for name in question["models"]}
    shared = {key: question[key] for key in ("recipes", "version", "device")}
    stages = [Stage(one, plans, models, features=arrays["features"], **shared) for one in question["servers"]]
    if question["scenes"]:
        header, answers = play(stages[0], question["scenes"], question["time_limit_s"])
    elif stages:
        header, answers = load(stages[0], stages[-1], question["seed"], question["time_limit_s"])
    else:
        header, answers = {}, {}  # it was asked whether servers can be started
    wire.send(1, header, answers)
