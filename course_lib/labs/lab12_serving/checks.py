"""What is looked at in lab 12: the scenes that a server survives, what batching gains, and what a Triton configuration means."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.benchmark import Interval, speedup
from course_lib.benchmark.statistics import median_interval
from course_lib.engines import Worker, split_target
from course_lib.errors import CourseError, EngineError, ExaminerFault, OutOfTime
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_least, equals
from course_lib.labs.framework.examination import Examiner, ours
from course_lib.labs.framework.lab import Work
from course_lib.labs.framework.submission import read_text, submitted
from course_lib.labs.lab12_serving import given, triton_schema
from course_lib.labs.lab12_serving.given import (
    FEATURES,
    FILES,
    HIDDEN,
    INPUT,
    MOST_ROWS,
    ONE_AT_A_TIME,
    OUTPUT,
    SCORES,
    WIDE,
    Scorer,
)
from course_lib.labs.lab12_serving.sandboxed import stage
from course_lib.labs.lab12_serving.sandboxed.stage import BURST, CACHE_SCENES, LONE, REQUEST_SCENES
from course_lib.recipe import Recipe

MAX_BYTES = 64 << 10  # of a file
MOST_LOST = 1  # scenes that may be lost for half of the points, if no answer is wrong
ROUNDS = 40  # of a measurement, at most
LONE_MS = 5.0  # a request that comes alone may take so much longer than without batching
SHARED = {ALL: 1.3, HALF: 1.1}  # requests of one run, on average: exactly 1 without batching, on every machine
GAIN = 1.1  # throughput over one request at a time. Times that do not decide count for the learner: `SHARED` decides
LONGEST_DELAY_US, INSTANCES = 5000, 2
MOST_UNMET = 2  # requirements of the configuration, for half of the points
_ROWS = 2000  # that all scenes together send; each is sent once
_PLAY_S, _SLACK_S = 90.0, 40.0  # for all scenes, and for the one that is on when the time is up
# Largest difference from the truth, relative to the size of a score. TF32 was computed to stay below 0.003; another payment's
# scores are wrong by more than 1.
_TOLERANCE = 0.02
_OTHER_WEIGHTS = 1000  # what the seed of a model's file is further on: only an engine can give the right answers
_LONGEST = 800  # characters of a learner's text in a message
Sources = Mapping[str, str]
Config = Mapping[str, Any]

HINTS = {
    "warm start": "Where does a plan go after it was built, and under what name does the next start look for it?",
    "damaged plan": "A plan with flipped bits loads and answers. What do you compare its bytes with before you load them?",
    "another version or device": "TensorRT was upgraded, or the cache moved to another GPU. What does a plan depend on?",
    "another network or recipe": "A network of the same name was retrained, or one value of the recipe changed. What is in the key?",
    "malformed requests": "Which properties of an array does the engine depend on? Check each one before a request meets others.",
    "many clients": "Which variable do two threads share here? Each request needs its own place for its answer.",
    "engine fails": "An exception in the thread that runs the engine has to reach the requests of that run, and must not end the thread.",
    "rollout": "Build and load the new engine first, with no lock held; then one assignment puts it in place.",
}
NEVER_RIGHT = (
    "Start your server in the notebook with start() and send it requests, first one, then several at a time: "
    "the same error appears there."
)


@dataclass(frozen=True)
class Finding:
    """The result of one scene.

    Attributes:
        wrong: number of wrong answers. A server must never give one.
        trouble: the other problem, one line; empty if the server survived.
    """

    scene: str
    wrong: int
    trouble: str

    @property
    def problem(self) -> str:
        """What went wrong, in a few words; empty if the server survived."""
        return f"{self.wrong} wrong answer{'s' if self.wrong > 1 else ''}" if self.wrong else self.trouble


@dataclass(frozen=True)
class Load:
    """Times of two servers in the same rounds: the learner's (``"yours"``), and the ``"given"`` one, with one request at a time.

    Attributes:
        burst_ms: time for `BURST` requests from many clients, by server, shape ``(rounds,)``.
        lone_ms: mean latency of requests that come alone, by server, shape ``(rounds,)``.
        runs: inferences of each burst of the learner's server, shape ``(rounds,)``.
        wrong: number of wrong answers of the learner's server.
    """

    burst_ms: Mapping[str, np.ndarray]
    lone_ms: Mapping[str, np.ndarray]
    runs: np.ndarray
    wrong: int = 0

    @property
    def gain(self) -> Interval:
        """Throughput over one request at a time."""
        return speedup(self.burst_ms["given"], self.burst_ms["yours"], seed=0)

    @property
    def extra_ms(self) -> Interval:
        """How much longer a request takes that comes alone, than without batching."""
        return median_interval(self.lone_ms["yours"] - self.lone_ms["given"], seed=0)

    @property
    def requests_per_run(self) -> float:
        """Requests that share an inference, on average."""
        return float(BURST * len(self.runs) / max(1, self.runs.sum()))


def sources(work: Work) -> Sources:
    """The text of ``store.py`` and ``server.py``."""
    return {name: read_text(work.folder / name, MAX_BYTES) for name in FILES}


# ---- cache and requests


def cache(work: Work) -> Iterator[Criterion]:
    """A cache that survives faults."""
    work.examiner.begins(f"cache: {len(CACHE_SCENES)} scenes with your server", 15)
    yield from survival(played(sources(work), list(CACHE_SCENES), work.examiner))


def requests(work: Work) -> Iterator[Criterion]:
    """Correct answers or errors."""
    work.examiner.begins(f"requests: {len(REQUEST_SCENES)} scenes with your server", 5)
    yield from survival(played(sources(work), list(REQUEST_SCENES), work.examiner))


def survival(findings: Sequence[Finding]) -> Iterator[Criterion]:
    """No wrong answer, and few or no scenes lost."""
    lost = sorted((finding for finding in findings if finding.problem), key=lambda finding: not finding.wrong)
    hint = HINTS[lost[0].scene] if lost else ""
    if lost and ": NotImplementedError" in lost[0].trouble:
        hint = "A part of your files is still empty: solve task 1 first."
    elif len(lost) == len(findings):  # the faults of the scenes are not the cause
        hint = NEVER_RIGHT
    yield equals("wrong answers", sum(finding.wrong for finding in findings), 0, HALF, hint=hint)
    survived, count = len(findings) - len(lost), len(findings)
    scenes: dict[str, list[str]] = {}
    for finding in lost:
        scenes.setdefault(finding.problem, []).append(finding.scene)
    listed = "; ".join(f"{', '.join(names)}: {problem}" for problem, names in scenes.items())
    found = f"{survived} of {count}" + (f" ({listed})" if lost else "")
    for bound, needed_for in ((count - MOST_LOST, HALF), (count, ALL)):
        yield replace(at_least("scenes survived", survived, bound, needed_for, hint=hint), found=found)


def played(files: Sources, names: Sequence[str], examiner: Examiner) -> list[Finding]:
    """The findings of scenes."""
    rng = examiner.rng()
    seed = int(rng.integers(1 << 31))
    models = {name: Scorer(seed + number, HIDDEN) for number, name in enumerate(("old", "new", "unbuildable"))}
    features = rng.normal(size=(_ROWS, FEATURES)).astype(np.float32)
    with _staged(models, features, examiner, other_recipes(rng)) as worker:
        answer = worker.ask({"do": "play", "sources": files, "scenes": names, "time_limit_s": _PLAY_S})
    truth = {name: scorer.scores(features) for name, scorer in models.items()}
    return [
        Finding(str(row["scene"]), count_wrong(row["answers"], truth), plain(row["trouble"], _LONGEST))
        for row in answer["scenes"]
    ]


def other_recipes(rng: np.random.Generator) -> dict[str, Recipe]:
    """Recipes that differ from the usual one in one value each, which is drawn."""
    usual = given.recipe()
    return {
        "precision": usual.model_copy(update={"precision": str(rng.choice(["fp16", "bf16"]))}),
        "workspace": usual.model_copy(update={"workspace_mib": int(rng.integers(1, 1024))}),
        "level": usual.model_copy(update={"optimization_level": int(rng.choice([0, 1, 2, 4, 5]))}),
        "profile": given.recipe(best=int(rng.integers(2, 8))),
    }


def count_wrong(answers: Sequence[tuple[int, str, Any]], truth: Mapping[str, np.ndarray]) -> int:
    """How many answers (first row, model, scores) differ from the right scores."""

    def is_wrong(first: int, model: str, scores: Any) -> bool:
        right = truth[model][first : first + len(scores)]
        return not np.allclose(scores, right, rtol=0, atol=_TOLERANCE * float(truth[model].std()))

    return sum(is_wrong(*answer) for answer in answers)


class _Stage(Worker):
    """The process of the stage."""

    program = stage.__name__

    def ask(self, request: dict[str, Any], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, Any]:
        """The answer to a request; see `stage.serve`."""
        return self._ask(request, arrays, timeout_s=request.get("time_limit_s", 0.0) + _SLACK_S)[0]


@contextmanager
def _staged(
    models: Mapping[str, Scorer], features: np.ndarray, examiner: Examiner, recipes: Mapping[str, Recipe] | None = None
) -> Iterator[_Stage]:
    """A stage that has everything but the servers.

    Args:
        models: whose files the servers see, with other weights than the plans: only an engine can give the right answers.
        recipes: those of the service besides the usual one.
    """
    backend, environment = split_target(examiner.runner)
    buildable = {name: scorer for name, scorer in models.items() if name != "unbuildable"}
    with tempfile.TemporaryDirectory() as folder, ours():
        files = {name: Path(folder, f"{name}.onnx") for name in buildable}
        for name, file in files.items():
            file.write_bytes(buildable[name].onnx())
        plans = dict(zip(files, examiner.runnables([(file, given.recipe()) for file in files.values()]), strict=True))
    arrays = {f"plan {name}": np.frombuffer(plan.data, np.uint8) for name, plan in plans.items()} | {"features": features}
    for name, scorer in models.items():
        arrays[f"model {name}"] = np.frombuffer(replace(scorer, seed=scorer.seed + _OTHER_WEIGHTS).onnx(), np.uint8)
    first = plans["old"]
    question = {
        "do": "prepare",
        "backend": backend,
        "models": list(models),
        "plans": {name: plan.summary() for name, plan in plans.items()},
        "recipes": {name: recipe.wire() for name, recipe in {"usual": given.recipe(), **(recipes or {})}.items()},
        "version": first.version,
        "device": (first.targets or ("cpu",))[0],
    }
    with _Stage(environment, launcher=examiner.launcher) as worker:
        try:
            worker.ask(question, arrays)
        except OutOfTime:
            raise
        except CourseError as error:  # no file of the submission has run yet
            interpreter = " ".join(environment.command)
            raise ExaminerFault(
                f"servers cannot be started with {interpreter} ({error}): it has to import NumPy and {backend}"
            ) from None
        yield worker


# ---- throughput


def measured(files: Sources, examiner: Examiner) -> Load:
    """Serve the same requests with the learner's server and with the given one, in turn."""
    rng = examiner.rng()
    models = {"old": Scorer(int(rng.integers(1 << 31)), WIDE)}
    features = rng.normal(size=(ROUNDS * (BURST + LONE), FEATURES)).astype(np.float32)
    question = {"do": "load", "given": ONE_AT_A_TIME, "yours": files, "seed": int(rng.integers(1 << 31))}

    def take() -> dict[str, Any]:
        with _staged(models, features, examiner) as worker:
            return worker.ask({**question, "time_limit_s": examiner.measure_s})

    answer = examiner.measured(take)
    if failed := plain(answer.get("failed", ""), _LONGEST):
        raise EngineError(failed) if answer["who"] == "yours" else ExaminerFault(f"the given server: {failed}")
    rounds = answer["rounds"]
    burst_ms = {name: np.array([1e3 * turn[name]["burst_s"] for turn in rounds]) for name in ("yours", "given")}
    lone_ms = {name: np.array([1e3 * np.mean(turn[name]["lone_s"]) for turn in rounds]) for name in ("yours", "given")}
    runs = np.array([turn["yours"]["runs"] for turn in rounds])
    return Load(burst_ms, lone_ms, runs, count_wrong(answer["answers"], {"old": models["old"].scores(features)}))


_SHARE_HINT = "Eight rows in one run cost much less than eight runs. What do 15 requests do while the engine works on one?"
_LONE_HINT = "Batching must not delay a request that arrives alone. How long does your server wait, and why?"
_ROWS_HINT = "Each answer must reach its own request. Which rows of a run belong to which request?"


def throughput(work: Work) -> Iterator[Criterion]:
    """Requests that share a run."""
    work.examiner.begins("throughput: your server and the given one, in turn", work.examiner.measure_s)
    load = measured(sources(work), work.examiner)
    work.figures |= {"over_one_at_a_time": load.gain.median, "requests_per_run": load.requests_per_run}
    yield from throughput_of(load)


def throughput_of(load: Load) -> Iterator[Criterion]:
    """Right answers, requests that share a run, the gain, and the time of a request that comes alone."""
    yield equals("wrong answers under load", load.wrong, 0, HALF, hint=_ROWS_HINT)
    for needed_for in (HALF, ALL):
        yield at_least("requests per run", load.requests_per_run, SHARED[needed_for], needed_for, hint=_SHARE_HINT)
    gain, extra = load.gain, load.extra_ms
    name, met = "throughput over one request at a time", gain.high >= GAIN
    yield Criterion(name, str(gain), f"at least {GAIN:g}x", met, ALL, _SHARE_HINT)
    shown = f"{extra.median:.1f} ms [{extra.low:.1f} to {extra.high:.1f}]"
    met = extra.low <= LONE_MS
    yield Criterion("delay of a single request by batching", shown, f"at most {LONE_MS:g} ms", met, ALL, _LONE_HINT)


# ---- Triton


def triton(work: Work) -> Iterator[Criterion]:
    """The same service in Triton."""
    file = submitted(work.folder, "config.pbtxt")
    work.examiner.begins("triton: your configuration against NVIDIA's schema", 3)
    try:
        config = triton_schema.parsed(file.read_bytes()[:MAX_BYTES].decode("utf-8-sig"))
    except ValueError as error:
        hint = "Line and column are at the start of the message. A list is [ ... ], a message is { ... }."
        yield Criterion("config.pbtxt", plain(error, 300), "a text that NVIDIA's parser reads", False, HALF, hint)
        return
    required = list(requirements(config))
    yield from required
    unmet = sum(not one.met for one in required)
    yield Criterion("requirements that are not met", str(unmet), f"at most {MOST_UNMET}", unmet <= MOST_UNMET, HALF)


def requirements(config: Config) -> Iterator[Criterion]:
    """The five requirements: the first one decides whether Triton loads the plan, the others how it serves."""
    most, batching = int(config["max_batch_size"]), config.get("dynamic_batching")
    preferred = [int(n) for n in (batching or {}).get("preferred_batch_size", ())]
    kind = {config["platform"], config["backend"]} - {""}
    shown, wanted = [" and ".join(sorted(kind)) or "no platform"], [(INPUT, FEATURES), (OUTPUT, SCORES)]
    loads = kind <= {"tensorrt_plan", "tensorrt"} and bool(kind) and config["name"] in ("", "scorer")
    loads &= 0 < most <= MOST_ROWS and all(1 <= n <= most for n in preferred)
    for side, (tensor, size) in zip(("input", "output"), wanted, strict=True):
        rows = [(row["name"], row["data_type"], [int(n) for n in row["dims"]]) for row in config[side]]
        shown += [f"{side} " + "; ".join(f"{name} {type_} {dims}" for name, type_, dims in rows)]
        loads &= rows == [(tensor, "TYPE_FP32", [size])] and "reshape" not in config[side][0]
    shown += [f"name {config['name'] or 'none'}", f"max_batch_size {most}, preferred {preferred}"]
    hint = "What are the plan's kind, names, types and sizes? With max_batch_size above 0 Triton adds the batch dimension."
    yield Criterion("Triton loads the plan", plain(", ".join(shown), _LONGEST), "what the plan has", loads, HALF, hint)
    whole = batching is not None and most >= MOST_ROWS and (not preferred or (1 not in preferred and max(preferred) >= most))
    shown_batching = f"with preferred {preferred}" if batching is not None else "absent"
    hint = "Triton batches only if the configuration says so, and sends a batch of a preferred size at once."
    found = f"max_batch_size {most}, dynamic_batching {shown_batching}"
    yield Criterion("batches up to the largest", found, "the largest that the plan allows", whole, ALL, hint)
    delay = int((batching or {}).get("max_queue_delay_microseconds", 0))
    hint, in_time = "With 0, no request waits for others. What is the unit?", 0 < delay <= LONGEST_DELAY_US
    bound = f"above 0, at most {LONGEST_DELAY_US / 1000:g} ms"
    yield Criterion("queueing delay", f"{delay:,} us", bound, in_time, ALL, hint, expected=f"at most {LONGEST_DELAY_US:,} us")
    groups = config["instance_group"]
    on_gpu = all(group["kind"] in ("KIND_GPU", "KIND_AUTO") and set(map(int, group["gpus"])) <= {0} for group in groups)
    total = sum(max(1, int(group["count"])) for group in groups) or 1
    hint = "Each instance is an execution context with its own stream. What does Triton make without an instance_group?"
    found = f"{total} {'on the GPU' if on_gpu else 'not only on GPU 0'}"
    yield Criterion("execution contexts", found, f"{INSTANCES} on GPU 0", on_gpu and total == INSTANCES, ALL, hint)
    policy = config.get("version_policy", {"latest": {"num_versions": 1}})
    both = "all" in policy or int(policy.get("latest", {}).get("num_versions", 0)) >= 2
    both |= {1, 2} <= set(map(int, policy.get("specific", {}).get("versions", ())))
    hint = "What has to be loaded to roll back in a second, and how many versions does Triton keep by default?"
    yield Criterion("versions", json.dumps(policy)[:80], "1 stays loaded beside 2", both, ALL, hint)
