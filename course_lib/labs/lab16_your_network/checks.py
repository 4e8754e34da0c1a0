"""What is looked at in each task of lab 16: answers against PyTorch, layer tables, and whether the findings agree with both."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, StrictBool, StrictInt

from course_lib._util.plain_text import plain
from course_lib.engines import Plan
from course_lib.errors import UNREADABLE, EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, at_least, holds
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.framework.learner_code import decoded
from course_lib.labs.framework.onnx_model import fixed, transformed
from course_lib.labs.framework.racing import decibels
from course_lib.labs.framework.runner import ask, read_hostile
from course_lib.labs.framework.submission import read_json, read_text, submitted, submitted_recipe
from course_lib.labs.lab16_your_network.given import FINDINGS, NETWORK, PRECISIONS, RECIPE, draw
from course_lib.labs.lab16_your_network.sandboxed import node_times, run_network
from course_lib.recipe import Recipe

# SQNR in dB of an engine's answers against the network in PyTorch, for all points and for half of them.
SQNR = {"fp32": (60.0, 30.0), "fp16": (30.0, 20.0), "int8": (20.0, 10.0)}
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
INT8_SHARE = 0.5  # of these nodes, for all points of INT8
LEAST_LAYERS = 3  # with weights: a network
SAME_DB = 10.0  # how far a reported SQNR may lie outside the grader's: other inputs, other processors, batches of one row
OF_SLOWEST = 1 / 3  # a node that takes this part of the slowest node's time is as good an answer, because machines differ
_MAX_BYTES = 64 << 10
_LIMIT_S = 60.0
_LONGEST = 300
_Name = Annotated[str, AfterValidator(lambda text: plain(text, 80))]  # a name of the learner, which reports show


class Answered(BaseModel):
    """What the process of network.py found.

    Attributes:
        inputs, integers, outputs: its signature.
        training: whether the module is in training mode.
        weights: number of parameters with more than one dimension.
        answers: for each question, the outputs in order.
    """

    inputs: dict[_Name, tuple[StrictInt | _Name, ...]]
    integers: dict[_Name, StrictInt]
    outputs: tuple[_Name, ...]
    training: StrictBool
    weights: StrictInt
    answers: list[list[Annotated[Any, BeforeValidator(decoded)]]]


class NetworkWork(Work):
    """A network in PyTorch, and its engines in three precisions, on the same inputs."""

    @step
    def recipe(self) -> Recipe:
        """``recipe.toml``, whose profiles all engines have."""
        return submitted_recipe(self.folder, RECIPE)

    @step
    def questions(self) -> list[dict[str, Any]]:
        """Shapes by input at the profile's min and opt, and at one place between min and max; each with a seed."""
        rng = self.rng()
        profile = self.recipe.profiles[0].root if self.recipe.profiles else {}
        place = float(rng.random())  # the same for all, so that dimensions of one name agree
        between = {
            name: [low + round(place * (high - low)) for low, high in zip(one.min, one.max, strict=True)]
            for name, one in profile.items()
        }
        known = ({name: list(getattr(one, bound)) for name, one in profile.items()} for bound in ("min", "opt"))
        return [{"shapes": shapes, "seed": int(rng.integers(1 << 30))} for shapes in (*known, between)]

    def model(self, precision: str) -> Path:
        """A file that was handed in, as builder and runner read it."""
        file = f"{precision}.onnx"
        return self.once(file, lambda: fixed(submitted(self.folder, file), self.scratch, self.examiner))

    @step
    def network(self) -> Answered:
        """network.py in its own process."""
        file = self.folder / NETWORK
        request = {"file": NETWORK, "source": read_text(file, _MAX_BYTES), "asked": self.questions}
        return ask(run_network.__name__, request, _answered, self.examiner.launcher, time_limit_s=_LIMIT_S)

    def recipe_of(self, precision: str) -> Recipe:
        """The recipe with another precision."""
        return self.recipe.model_copy(update={"precision": precision})

    def built(self, precision: str) -> Plan:
        """The plan of one file, which proves its precision: that of TensorRT for RTX, as the notebook's, whatever the grader has."""
        rtx = self.examiner.with_rtx
        return self.once(f"plan of {precision}", lambda: rtx.build(self.model(precision), self.recipe_of(precision)))

    @step
    def plan(self) -> Plan:
        """The FP32 plan, whose layers the report shows."""
        return self.built("fp32")

    def sqnr(self, precision: str) -> list[float]:
        """SQNR in dB of an engine against the network in PyTorch, at each of the sizes."""
        return self.once(f"SQNR of {precision}", lambda: self._sqnr(precision))

    def _sqnr(self, precision: str) -> list[float]:
        network = self.network
        plan = self.examiner.with_rtx.runnable(self.model(precision), self.recipe_of(precision), self.built(precision))
        found = []
        with self.examiner.engine(plan) as engine:
            for asked, want in zip(self.questions, network.answers, strict=True):
                outputs = engine.infer(draw(network.inputs, network.integers, asked["shapes"], asked["seed"]))
                if list(outputs) != list(network.outputs):
                    names = ", ".join(outputs), ", ".join(network.outputs)
                    raise EngineError(f"{precision}.onnx has the outputs {names[0]}, network.py {names[1]}")
                pairs = zip(network.outputs, want, strict=True)
                found.append(min(_decibels(one, outputs[key]) for key, one in pairs))
        return found

    @step
    def node_shares(self) -> dict[str, float]:
        """By node of the FP32 graph, its part of the time in ONNX Runtime on this machine, at opt."""
        network, (_, asked, _) = self.network, self.questions
        feeds = io.BytesIO()
        np.savez(feeds, **draw(network.inputs, network.integers, asked["shapes"], asked["seed"]))  # type: ignore[arg-type]
        question = f"{len(feeds.getvalue())}\n".encode() + feeds.getvalue() + self.model("fp32").read_bytes()
        answer = transformed(node_times.shares, question, "fp32.onnx", launcher=self.examiner.launcher)
        return read_hostile(answer, lambda rows: {plain(name, 200): float(share) for name, share in rows})


def export(work: NetworkWork) -> Iterator[Criterion]:
    """The FP32 engine against network.py in PyTorch, at three sizes, one of which cannot be known in advance."""
    work.examiner.begins("export: your network in PyTorch and your engine", 10)
    network = work.network
    yield holds("network.py is in eval mode", not network.training, HALF, hint="factory() returns the module after .eval().")
    hint = "Bring a network with at least a few layers of its own."
    yield at_least("parameters with more than one dimension", network.weights, LEAST_LAYERS, HALF, hint=hint)
    assert work.plan
    hint = "Is it the same network? The weights must be the same in each call of factory(): set the seed in it, or load them."
    for least, needed_for in zip(reversed(SQNR["fp32"]), (HALF, ALL), strict=True):
        yield at_least("SQNR of FP32 against PyTorch", min(work.sqnr("fp32")), least, needed_for, unit="dB", hint=hint)


def _same_network(work: NetworkWork) -> Criterion:
    """What tasks 2 and 3 need first: if the FP32 engine is another network, their numbers mean nothing."""
    met = not work.network.training and min(work.sqnr("fp32")) >= SQNR["fp32"][1]
    symptom = "The FP32 engine does not answer as network.py, so nothing can be compared with it. Task 1 first."
    return Criterion(
        "task 1", "earned" if met else "not earned", "an engine that answers as network.py", met, HALF, symptom=symptom
    )


def precision(work: NetworkWork) -> Iterator[Criterion]:
    """FP16 and INT8: proved by the layer tables, and close to PyTorch."""
    for name in PRECISIONS[1:]:
        work.examiner.begins(f"precision: {name}", 10)
        assert work.built(name)
    yield (same := _same_network(work))
    if not same.met:
        return
    for name, hint in (
        ("fp16", "Which node reaches more than 65,504, or a sum of many terms? Keep it in FP32."),
        ("int8", "Which ranges did you observe, and on which inputs? Compare layer by layer, as lecture 6 does."),
    ):
        for least, needed_for in zip(reversed(SQNR[name]), (HALF, ALL), strict=True):
            yield at_least(
                f"SQNR of {name.upper()} against PyTorch", min(work.sqnr(name)), least, needed_for, unit="dB", hint=hint
            )
    table = work.built("int8").layers
    products = {node for node, operator in table.operators.items() if operator in PRODUCTS}
    integer = {node for kernel in table.kernels if "Int8" in kernel.dtypes for node in kernel.onnx_nodes} & products
    found = f"{len(integer)} of {len(products)}" + (
        f", not {', '.join(sorted(products - integer)[:3])}" if products - integer else ""
    )
    hint = "insert_qdq quantizes products with weights. Which of these has none, and which did you leave out?"
    met = len(integer) >= INT8_SHARE * len(products)
    yield Criterion("convolutions and matrix products in INT8", found[:160], "at least half", met, ALL, hint)


def findings(work: NetworkWork) -> Iterator[Criterion]:
    """Whether each number in findings.json is what the grader finds in the same files."""
    reported = _findings(work)
    for name in PRECISIONS:
        number, own = reported["kernels"].get(name), len(work.built(name).layers.kernels)
        work.figures[f"kernels_{name}"] = own
        hint = "Were the files exported again after you counted? Write the findings from the plans of these files."
        bound = f"those of {name}.onnx"
        yield Criterion(f"kernels of {name.upper()}", str(number)[:20], bound, number == own, HALF, hint)
    yield (same := _same_network(work))
    if not same.met:
        return
    for name in PRECISIONS[1:]:
        found, said = work.sqnr(name), reported["sqnr_db"].get(name)
        work.figures[f"sqnr_db_{name}"] = min(found)
        hint = "Compare with the FP32 engine, on inputs that given.draw makes, at the batch of opt. Was the file written again since?"
        met = isinstance(said, (int, float)) and min(found) - SAME_DB <= said <= max(found) + SAME_DB
        bound = f"that of {name}.onnx within {SAME_DB:g} dB"
        yield Criterion(f"SQNR of {name.upper()} in dB", str(said)[:20], bound, met, HALF, hint)
    shares, slowest = work.node_shares, str(reported["slowest"])
    largest = max(shares, key=lambda node: shares[node])
    hint = "Measure more runs, on a quiet machine, with the inputs of opt. Take the name as the profile prints it."
    met = shares.get(slowest, 0.0) >= OF_SLOWEST * shares[largest]
    yield Criterion("slowest layer", slowest[:80], "one of the slowest in the grader's profile", met, ALL, hint)


def _findings(work: NetworkWork) -> dict[str, Any]:
    values = read_json(submitted(work.folder, FINDINGS), _MAX_BYTES)
    keys = ("kernels", "sqnr_db", "slowest")
    if not isinstance(values, dict) or any(key not in values for key in keys):
        raise EngineError(f"{FINDINGS} needs the keys {', '.join(keys)}", code=UNREADABLE)
    if not all(isinstance(values[key], dict) for key in keys[:2]):
        raise EngineError(f'{FINDINGS}: "kernels" and "sqnr_db" hold numbers by precision: {{"fp16": 12}}', code=UNREADABLE)
    return values


def _decibels(want: np.ndarray, have: np.ndarray) -> float:
    if want.shape != have.shape:
        raise EngineError(f"the engine answers with shape {have.shape}, network.py with {want.shape}")
    return decibels(want.astype(np.float64), have.astype(np.float64))


def _answered(values: Any) -> Answered:
    if "error" in values:
        raise EngineError(f"{plain(values['file'], 40)}: {plain(values['error'], _LONGEST)}")
    return Answered.model_validate(values)
