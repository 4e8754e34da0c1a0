"""Everything that the grader's own process reads of a submission or of its processes, with valid inputs to begin from.

What a reader may raise is what the code that calls it turns into a result. Anything else would end a grading.
"""

import contextlib
import io
import json
import os
import struct
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.errors import CourseError


@dataclass(frozen=True)
class Reader:
    """A reader and what it begins from.

    Attributes:
        read: takes the bytes.
        seeds: valid inputs.
        raises: what its caller turns into a result.
        most_bytes: longest input; what is longer is rejected before it is read.
    """

    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    raises: tuple[type[Exception], ...] = (CourseError,)
    most_bytes: int = 64 << 10


def readers() -> dict[str, Callable[[], Reader]]:
    """All of them by name; each is made on first use, because some import much."""
    return {
        **{name: lambda name=name: _of_file(name) for name in _FILES},  # type: ignore[misc]
        "model.onnx": _onnx,
        "a worker's message": _message,
        "a worker's header": _header,
        "a worker's plan": _plan,
        "a learner's id": _id,
        "a notebook": _notebook,
        "a verdict": _verdict,
    }


# ---- files of a submission

_RECIPE = b"""precision = "int8"
workspace_mib = 1024
flags = ["tf32"]
targets = ["sm90"]

[[profile]]
image = { min = [1, 1, 32, 32], opt = [8, 1, 32, 32], max = [32, 1, 32, 32] }
"""
_SETTINGS = b"""size = 128
confidence = 0.5
overlap = 0.5
every = 1
batch = 1
queue = 1
drop = "oldest"
classes = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""
_SCRATCH = tempfile.TemporaryDirectory()  # for the files that readers are given; gone when the tests are


def _npz(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


_FILES: dict[str, tuple[Callable[[Path], object], bytes]] = {}


def _file(name: str, seed: bytes) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    def put(read: Callable[[Path], object]) -> Callable[[Path], object]:
        _FILES[name] = read, seed
        return read

    return put


def _of_file(name: str) -> Reader:
    read, seed = _FILES[name]
    return Reader(_from_file(read, name), [seed])


def _from_file(read: Callable[[Path], object], name: str) -> Callable[[bytes], object]:
    path = Path(tempfile.mkdtemp(dir=_SCRATCH.name), name)

    def from_bytes(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return from_bytes


@_file("recipe.toml", _RECIPE)
def _(path: Path) -> object:
    from course_lib.recipe import Recipe

    recipe = Recipe.load(path)
    return Recipe.loads(recipe.dumps()), recipe.wire()


@_file("lab02 causes.json", b'{"learner": "ada", "costs": {"casts": 0, "layout": 2}}')
def _(path: Path) -> object:
    from course_lib.labs import Examiner, find

    path.replace(path.with_name("causes.json"))
    with find("lab02").work(path.parent, Examiner()) as work:
        return work.causes, work.learner


@_file("lab04 findings.toml", b'[largest]\n"/norm/Mul" = 70000.0\n"/b" = 1\n')
def _(path: Path) -> object:
    from course_lib.labs.lab04_mixed_precision import given

    return given.read(path)


@_file("lab10 causes.json", b'{"learner": "ada", "causes": {"lock": {"range": "lock", "share": 0.4}}}')
def _(path: Path) -> object:
    from course_lib.labs import Examiner, find

    path.replace(path.with_name("causes.json"))
    with find("lab10").work(path.parent, Examiner()) as work:
        return work.causes


@_file("lab15 settings.toml", _SETTINGS)
def _(path: Path) -> object:
    from course_lib.labs.lab15_capstone.given import Settings

    return Settings.load(path)


def _trained() -> bytes:
    from course_lib.labs.lab06_qat.layers import LAYERS

    arrays: dict[str, Any] = {}
    for name, shape in LAYERS.items():
        ones = np.ones(shape.outputs, np.float32)
        arrays |= {f"{name}.codes": np.zeros(shape.weight, np.int8), f"{name}.scale": ones, f"{name}.bias": ones}
        arrays[f"{name}.input_scale"] = np.float32(1)
    return _npz(arrays)


@_file("lab06 trained.npz", _trained())
def _(path: Path) -> object:
    from course_lib.labs.lab06_qat import given

    return given.read_trained(path)


@_file("lab14 weights.npz", _npz({"blocks.0.out.fp8": np.zeros((192, 192), np.uint8), "blocks.0.out.scales": np.float16(1)}))
def _(path: Path) -> object:
    from course_lib.labs.lab14_four_bits import given

    return given.read(path)


@_file("a source", b"def f():\n    return '\xc3\xa9'\n")
def _(path: Path) -> object:
    from course_lib.labs.framework.submission import read_text

    return read_text(path, 64 << 10)


@cache
def _models() -> list[bytes]:
    from onnx import TensorProto, helper, numpy_helper

    shape = [1, "n"]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="a"), helper.make_node("Relu", ["h"], ["y"])]
    plain = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], [weight]))
    outside = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], [weight]))
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "16")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    branch = helper.make_graph(nodes[1:], "b", [], values[1:])
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    branched = helper.make_model(helper.make_graph([chosen], "g", values[:1], values[1:]))
    return [one.SerializeToString() for one in (plain, outside, branched)]


def _onnx() -> Reader:
    from course_lib.engines.onnx_file import self_contained
    from course_lib.engines.registry import operators_of

    warnings.simplefilter("ignore")  # onnx's, about keys that it does not know

    def read(path: Path) -> object:
        with contextlib.suppress(CourseError):
            self_contained(path)  # also of what the other one rejects
        return operators_of(path, reject_lowered=True)

    return Reader(_from_file(read, "model.onnx"), _models(), most_bytes=1 << 20)


# ---- what processes of a submission answer


def _wired(header: dict[str, Any], *arrays: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(arrays)


def _message() -> Reader:
    from course_lib.engines.worker import parent, wire

    def read(data: bytes) -> object:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.seek(0)
            header, arrays = wire.receive(file.fileno(), most_bytes=256 << 20)
        if "error" in header:
            return parent._error(*(str(header.get(key, "")) for key in ("error", "message", "code")))
        try:
            return parent._infos(header.get("inputs", [])), arrays
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):  # as `Worker._read`
            return None

    seeds = [
        _wired({"inputs": [{"name": "x", "shape": [1, 2], "dtype": "float32"}], "arrays": []}),
        _wired({"arrays": [{"name": "y", "dtype": "float32", "shape": [2, 2]}]}, bytes(16)),
        _wired({"error": "BuildError", "message": "no", "code": "precision", "arrays": []}),
        _wired({"progress": [0.5, "phase"], "arrays": []}),
    ]
    return Reader(read, seeds, (CourseError, EOFError, TimeoutError), most_bytes=16 << 20)


def _header() -> Reader:
    """Messages whose length is right, so that each header is parsed."""
    whole = _message()
    seeds = [seed[8 : 8 + struct.unpack("<Q", seed[:8])[0]] for seed in whole.seeds]
    return Reader(
        lambda text: whole.read(struct.pack("<Q", len(text)) + text + bytes(64)), seeds, whole.raises, whole.most_bytes
    )


def _plan() -> Reader:
    from course_lib.engines.layers import LayerTable
    from course_lib.engines.plan import Plan

    plan = Plan("toy", "1", b"", "0" * 64, {"precision": "fp32"}, ("sm90",), LayerTable((), {"a": "MatMul"}), 0.5, ("note",))

    def read(data: bytes) -> object:
        return Plan.from_json(json.loads(data), b"").layers.dtype_counts()

    raises = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)  # of `Worker._read` and of `wire`
    return Reader(read, [json.dumps(plan.to_json()).encode()], raises)


# ---- what lies in a classroom


def _no_reason(reason: str) -> None:
    """For what returns a reason and raises nothing."""
    if reason:
        raise CourseError(reason)


def _id() -> Reader:
    from course_lib.grading.batch.intake import id_problem, is_usual_name, shown

    def read(data: bytes) -> object:
        name = os.fsdecode(data)
        reason = id_problem(name)
        assert reason.isascii() and len(reason) < 200 and shown(name).isprintable() and shown(name).isascii()
        return _no_reason(reason or ("" if is_usual_name(name) else "unusual"))

    return Reader(read, ["zoë.müller@example.org".encode(), "学生".encode(), b"ada"], most_bytes=255)


def _notebook() -> Reader:
    import nbformat

    from course_lib.grading.batch import notebook_reader

    answer = nbformat.v4.new_markdown_cell(
        "YOUR ANSWER", metadata={"nbgrader": {"grade_id": "written", "grade": True, "solution": True}}
    )
    released = nbformat.v4.new_notebook(cells=[answer])

    def read(data: bytes, file: Path) -> object:
        notebook, problem = notebook_reader.read(data, released)
        nbformat.validate(nbformat.reads(json.dumps(notebook), as_version=4))
        return _no_reason(problem)

    cells = [
        nbformat.v4.new_markdown_cell("# t"),
        nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text="x")]),
    ]
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": [], "metadata": {}}]}
    seeds = [nbformat.writes(nbformat.v4.new_notebook(cells=cells)).encode(), json.dumps(old).encode()]
    return Reader(_from_file(lambda path: read(path.read_bytes(), path), "lab.ipynb"), seeds, most_bytes=1 << 20)


def _verdict() -> Reader:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from course_lib import labs
    from course_lib.grading.integrity import signature
    from course_lib.grading.judge import recompute
    from course_lib.grading.judge.verdict import read_document

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    lab = labs.find("lab01")
    named = [{"id": task.id, "title": task.title, "points": task.points} for task in lab.tasks]
    tasks = [{"task": task, "tier": "none", "points": 0.0, "message": "", "hint": ""} for task in named]
    known = {"lab": lab.name, "score": 0.0, "max_score": 10.0, "fault": "", "tasks": tasks, "figures": {}, "comparison": None}
    known |= {"table": None, "layers": None, "provenance": {}}
    race = {
        "baseline": "eager",
        "seconds": 1.0,
        "stopped": "precise",
        "latencies_ms": {"eager": [1.0, 1.1], "yours": [0.5, 0.6]},
    }
    raced = known | {"comparison": race | {"speedup": {"yours": {"median": 2.0, "low": 1.9, "high": 2.1}}}}

    def read(path: Path) -> object:
        """As altered, and as signed by the one who altered it: then all of it is computed again."""
        found = read_document(path)
        recompute.contradictions(found)
        found.pop("signature", None)
        return recompute.contradictions(signature.signed(found, key))

    seeds = [json.dumps(signature.signed(one, key)).encode() for one in (known, raced)]
    return Reader(_from_file(read, "verdict.json"), seeds)
