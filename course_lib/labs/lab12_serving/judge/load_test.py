"""The judge's part of lab 12: builds the plans, starts the supervisor in its confined process, and checks the replies."""

from __future__ import annotations

import hashlib
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import course_lib
from course_lib._util.plain_text import plain
from course_lib.engines import Plan, split_target
from course_lib.engines.worker import wire
from course_lib.errors import EngineError, ExaminerFault
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.isolation import run_isolated
from course_lib.labs.framework.reference import ours
from course_lib.labs.lab12_serving.network import FEATURES, INPUT, MOST_ROWS, SCORES, Scorer
from course_lib.labs.lab12_serving.sandboxed.stage import Reply, Scene
from course_lib.recipe import Profile, Recipe

_LIBRARY = str(Path(course_lib.__file__).resolve().parent.parent)
_SUPERVISOR = (
    "import sys; sys.path.insert(0, sys.argv[1]); from course_lib.labs.lab12_serving.sandboxed.supervisor import main; main()"
)
_ROWS = 3000  # that all scenes together send; each is sent once
_MAX_ANSWER = 32 << 20
_PLAY_S = 90.0  # measured with the reference on two loaded cores: 17 to 19 s for all scenes
_SLACK_S = 40.0  # for the scene that is on when the time is up: every wait in it has its own limit
# Largest difference from the truth, relative to the size of a score. TF32 was computed to stay below 0.003; another payment's
# scores are wrong by more than 1.
_TOLERANCE = 0.02
OTHER_GRAPHS = ("operator", "attribute", "other attribute", "last byte")  # files for which the builder gives the old plan
_USUAL = (1, 8, MOST_ROWS)  # rows of the profile: smallest, best, largest batch
_OTHER_WEIGHTS = 1000  # what the seed of a model's file is further on
Sources = Mapping[str, str]
_Read = TypeVar("_Read")


def recipe() -> Recipe:
    """The recipe of the service: 1 to 16 payments per inference."""
    return Recipe(profiles=(_profile(_USUAL),))


def _profile(rows: Sequence[int]) -> Profile:
    """A profile with the smallest, the best and the largest batch."""
    return Profile({INPUT: {bound: (size, FEATURES) for bound, size in zip(("min", "opt", "max"), rows, strict=True)}})


def other_recipes(rng: np.random.Generator) -> dict[str, Recipe]:
    """Recipes by the field in which they differ from the usual one, which a server's key must hold.

    Each field has two other values, which are drawn. So a key must hold the value itself, and not only whether it is the usual one.
    """

    def two(values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in rng.permutation(len(values))[:2]]

    values: dict[str, list[Any]] = {
        "precision": two(["fp16", "bf16", "int8", "fp8"]),
        "workspace_mib": two(range(1, 1024)),
        "optimization_level": two([0, 1, 2, 4, 5]),
        "flags": two([(), ("sparse_weights",), ("tf32", "refit")]),
        "targets": two([(f"sm{number}",) for number in (75, 80, 86, 89, 90)]),
        "hardware_compatibility": two(["ampere_plus", "same_compute_capability"]),
        "profiles": [
            tuple(map(_profile, several))
            for several in (
                [(0, 8, MOST_ROWS)],  # a larger smallest batch would forbid requests that the scene sends
                *([(1, best, MOST_ROWS)] for best in two(range(2, 8))),
                *([(1, 8, largest)] for largest in two(range(8, MOST_ROWS))),
                *([_USUAL, (1, 8, largest)] for largest in two(range(8, MOST_ROWS))),
            )
        ],
    }
    return {
        f"{name} {number}": recipe().model_copy(update={name: value})
        for name, several in values.items()
        for number, value in enumerate(several)
    }


def retrained(model: bytes, rng: np.random.Generator) -> bytes:
    """The network's file with another bit in one weight, both at random."""
    import onnx
    from onnx import numpy_helper

    network = onnx.load_model_from_string(model)
    tensors = network.graph.initializer
    sizes = np.array([np.prod(tensor.dims) for tensor in tensors], float)
    weights = tensors[int(rng.choice(len(tensors), p=sizes / sizes.sum()))]
    values = numpy_helper.to_array(weights).copy()
    values.reshape(-1).view(np.uint32)[rng.integers(values.size)] ^= np.uint32(1 << int(rng.choice([*range(23), 31])))
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    return bytes(network.SerializeToString())


def other_graphs(model: bytes, rng: np.random.Generator) -> dict[str, bytes]:
    """The network's file with the same weights and another graph, by what is changed: a node, its attribute, or the last byte."""
    import onnx
    from onnx import helper

    networks = {name: onnx.load_model_from_string(model) for name in OTHER_GRAPHS}
    place = int(rng.choice([number for number, node in enumerate(networks["operator"].graph.node) if node.op_type == "Relu"]))
    networks["operator"].graph.node[place].op_type = str(rng.choice(["Tanh", "Ceil", "Sqrt", "Sign"]))  # as long as Relu
    for name, slope in zip(("attribute", "other attribute"), rng.choice(np.arange(1, 16) / 16, 2, replace=False), strict=True):
        node = networks[name].graph.node[place]
        node.op_type = "LeakyRelu"
        node.attribute.append(helper.make_attribute("alpha", float(slope)))
    networks["last byte"].opset_import[0].version = int(rng.choice([15, 16, 18, 19]))
    return {name: bytes(network.SerializeToString()) for name, network in networks.items()}


@dataclass(frozen=True)
class Truth:
    """The correct answers. They never leave the judge.

    Attributes:
        features: every row that may be sent.
        scores: right answers by model, ``(n, SCORES)``.
    """

    features: np.ndarray
    scores: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, models: Mapping[str, Scorer], rows: int, rng: np.random.Generator) -> Truth:
        """Draw normally distributed features, float32 ``(rows, FEATURES)``, and compute the scores of each model."""
        features = rng.normal(size=(rows, FEATURES)).astype(np.float32)
        return cls(features, {name: scorer.scores(features) for name, scorer in models.items()})

    def wrong(self, scene: Scene) -> list[Reply]:
        """The replies whose numbers differ from the right answer."""
        found, place = [], 0
        given = scene.scores[0] if scene.scores else np.empty((0, SCORES))
        for reply in scene.replies:
            if reply.status == "ok" and reply.rows:
                mine, place = given[place : place + reply.rows], place + reply.rows
                models = list(self.scores) if reply.model == "either" else [reply.model]
                if not any(self._close(mine, model, reply.first) for model in models):
                    found.append(reply)
        return found

    def _close(self, mine: np.ndarray, model: str, first: int) -> bool:
        want = self.scores[model][first : first + len(mine)]
        return want.shape == mine.shape and bool(np.abs(mine - want).max() <= _TOLERANCE * self._size(model))

    def _size(self, model: str) -> float:
        return float(self.scores[model].std())


def play(sources: Sources, names: Sequence[str], examiner: Examiner) -> tuple[list[Scene], Truth]:
    """Play scenes with a learner's server.

    Raises:
        EngineError: the server's process took too long or sent an invalid answer.
        ExaminerFault: the network could not be built.
    """
    rng = examiner.rng()
    seed = int(rng.integers(1 << 31))
    models = {"old": Scorer(seed, 256), "new": Scorer(seed + 1, 256)}
    truth = Truth.of(models, _ROWS, rng)
    truth = replace(truth, scores={**truth.scores, **dict.fromkeys(OTHER_GRAPHS, truth.scores["old"])})
    question = {"do": "scenes", "scenes": list(names), "time_limit_s": _PLAY_S, "servers": {"yours": dict(sources)}}
    models["unbuildable"] = Scorer(seed + 2, 256)
    files = _files(models)
    files |= {"new": retrained(files["old"], rng), **other_graphs(files["old"], rng)}
    answer, arrays = _ask(question, models, files, ("old", "new"), {"wide": recipe(), **other_recipes(rng)}, truth, examiner)
    return _read(partial(_scenes, answer, arrays)), truth


def load(servers: Mapping[str, Sources], examiner: Examiner, rows: int) -> tuple[dict[str, Any], list[Scene], Truth]:
    """Time servers together. Returns the supervisor's answer, the replies of the first server, and the correct answers; see `play`."""
    rng = examiner.rng()
    models = {"old": Scorer(int(rng.integers(1 << 31)), 2048)}
    truth = Truth.of(models, rows, rng)
    question = {"do": "load", "seed": int(rng.integers(1 << 31)), "time_limit_s": examiner.measure_s}
    question["servers"] = {name: dict(sources) for name, sources in servers.items()}
    answer, arrays = _ask(question, models, _files(models), ("old",), {"wide": recipe()}, truth, examiner)
    return answer, _read(partial(_scenes, answer, arrays)), truth


def _files(models: Mapping[str, Scorer]) -> dict[str, bytes]:
    """The files that a server sees. They have other weights than the plans, so only an engine can give the right answers."""
    return {name: replace(scorer, seed=scorer.seed + _OTHER_WEIGHTS).onnx() for name, scorer in models.items()}


def _ask(
    question: dict[str, Any],
    models: Mapping[str, Scorer],
    files: Mapping[str, bytes],
    built: Sequence[str],
    recipes: Mapping[str, Recipe],
    truth: Truth,
    examiner: Examiner,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Ask the supervisor.

    Args:
        files: what the server sees in the models' place, and of networks with other graphs.
        built: names of the models that can be built.
        recipes: the usual one, and those for which the builder gives the first model's usual plan, because only their keys matter.
    """
    arrays = {f"model {name}": np.frombuffer(data, np.uint8) for name, data in files.items()}
    rows = []
    plan, *rest = _built([(models[name].onnx(), recipe()) for name in built], examiner)
    wanted = [(built[0], asked, plan) for asked in recipes.values()]
    wanted += [(name, recipe(), one) for name, one in zip(built[1:], rest, strict=True)]
    wanted += [(name, recipe(), plan) for name in OTHER_GRAPHS if name in files]
    for number, (name, asked, one) in enumerate(wanted):
        rows.append({"model": hashlib.sha256(files[name]).hexdigest(), "recipe": asked.wire(), "plan": one.summary()})
        arrays[f"plan {number}"] = np.frombuffer(one.data, np.uint8)
    question |= {"models": list(files), "plans": rows, "recipes": {name: one.wire() for name, one in recipes.items()}}
    # A server can reach the sandbox's own output by way of /proc/1. It cannot look into the supervisor, which alone knows this.
    question["apart"] = examiner.launcher is not None
    question["token"] = token = secrets.token_hex(16)
    question |= {"version": plan.version, "device": (plan.targets or ("cpu",))[0]}
    backend, environment = split_target(examiner.runner)
    question |= {"backend": backend, "interpreter": list(environment.command)}
    with tempfile.TemporaryFile() as file:
        wire.send(file.fileno(), question, {**arrays, "features": truth.features})
        file.seek(0)
        message = file.read()
    said = run_isolated(
        [sys.executable, "-I", "-c", _SUPERVISOR, _LIBRARY],
        message,
        launcher=examiner.launcher,
        time_limit_s=question["time_limit_s"] + _SLACK_S,
        max_bytes=_MAX_ANSWER,
    )
    with tempfile.TemporaryFile() as file:
        file.write(said)
        file.seek(0)
        answer, arrays = _read(lambda: wire.receive(file.fileno()))
    if answer.pop("token", None) != token:
        raise EngineError("something else than the supervisor answered")
    if "unable" in answer:
        raise ExaminerFault(
            f"each server needs its own sandbox, which this machine does not allow ({plain(answer['unable'], 200)}): "
            "allow user namespaces inside of user namespaces"
        )
    if "no servers" in answer:
        raise ExaminerFault(
            f"servers cannot be started with {' '.join(environment.command)} ({plain(answer['no servers'], 300)}): "
            "it has to import NumPy and the backend"
        )
    return answer, arrays


def _built(wanted: Sequence[tuple[bytes, Recipe]], examiner: Examiner) -> list[Plan]:
    with tempfile.TemporaryDirectory() as folder, ours():
        written = []
        for number, (model, recipe) in enumerate(wanted):
            path = Path(folder, f"{number}.onnx")
            path.write_bytes(model)
            written.append((path, recipe))
        return examiner.runnables(written)


def _scenes(answer: dict[str, Any], arrays: dict[str, np.ndarray]) -> list[Scene]:
    found = []
    for number, row in enumerate(answer["scenes"]):
        scores = arrays.get(f"scores {number}")
        replies = [Reply(**reply) for reply in row["replies"]]
        found.append(replace(Scene(**{**row, "replies": replies}), scores=[] if scores is None else [scores]))
    return found


def _read(convert: Callable[[], _Read]) -> _Read:
    """`convert` applied to an answer that learner code may have changed.

    Raises:
        EngineError: it fails.
    """
    try:
        return convert()
    except (EOFError, KeyError, TypeError, ValueError, AttributeError, EngineError):
        raise EngineError("the process that runs the server ended early or sent an invalid answer") from None
