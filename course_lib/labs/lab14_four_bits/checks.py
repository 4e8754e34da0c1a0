"""What lab 14 examines in each task. Only the loss is measured on fresh data; everything else follows from the files."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.npz_files import read_arrays
from course_lib.engines import LayerTable
from course_lib.errors import BuildError, EngineError, ExaminerFault
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_right, at_least, at_most, holds
from course_lib.labs.framework.examination import RTX
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.framework.submission import submitted
from course_lib.labs.lab14_four_bits import given
from course_lib.labs.lab14_four_bits.given import BUDGET, PRODUCTS, RECIPE, Int4, Stored
from course_lib.labs.lab14_four_bits.loss import Lost, Meter

LEARNER, PACKED, SCALES = "learner.json", "packed.npz", "scales.npz"
MAX_BYTES = 1 << 20  # of each of these files
BLOCK = 64  # of the scales in task 2
MOST_ERROR = 1.04  # times the error of the course's scales
ALIKE = 0.015  # relative difference of two errors that the same method leaves, with other fractions
FULL_BITS, HALF_BITS = 5.3, 6.5  # per weight of the products, scales included
FULL_PRODUCTS, HALF_PRODUCTS = len(PRODUCTS), 12
MOST_ABOVE = 1.5  # times the budget, that the loss itself may be
WINDOWS = 64  # of secret text: the interval is about a twentieth of the loss
# Relative errors of a product's weight. Measured: 0.12 in rows of 192, with searched scales; 0.29 with scales in another order.
_USUAL, _FAITHFUL = 0.2, 0.35
RUNNER = "onnxruntime"  # it runs these formats on any machine; TensorRT 8.6 has none of them
_BITS = {"Int4": 4, "FP8": 8, "Half": 16, "Float": 32}  # of a type, in TensorRT's words


@cache
def expected() -> Any:
    """Digests of task 1 and errors of task 2, which `reference` wrote. Learners have this file, too."""
    return json.loads(files(__package__).joinpath("expected.json").read_text(encoding="utf-8"))


class FourBitsWork(Work):
    """What the checks of lab 14 read, run and compile."""

    learner_file = LEARNER

    @step
    def packed(self) -> dict[str, np.ndarray]:
        """The arrays of task 1."""
        return read_arrays(submitted(self.folder, PACKED), MAX_BYTES)

    @step
    def scales(self) -> dict[str, np.ndarray]:
        """The scales of task 2 by product, float32 ``(out, in / block)``."""
        arrays = read_arrays(submitted(self.folder, SCALES), MAX_BYTES)
        problems = []
        for name, (rows, columns) in PRODUCTS.items():
            shape, array = (columns, rows // BLOCK), arrays.get(name)
            if array is None:
                problems.append(f"{name} is missing")
            elif array.dtype != np.float16 or array.shape != shape:
                problems.append(
                    f"{name} is {array.dtype} of the shape {array.shape}, expected float16 (out, in / block) = {shape}"
                )
            elif not (np.isfinite(array) & (array > 0)).all():
                problems.append(f"{name} has a scale that is zero, negative or not finite")
        if problems:
            raise BuildError(f"{SCALES}: {'; '.join(problems[:3])}")
        return {name: arrays[name].astype(np.float32) for name in PRODUCTS}

    @step
    def stored(self) -> dict[str, Stored]:
        """The weights of task 3."""
        return given.read(submitted(self.folder, given.FILE), self.learner)

    @step
    def loss(self) -> Lost:
        """What the course's graph with these weights loses on a text that is drawn for this examination, in ONNX Runtime."""
        self.examiner.begins("size: your weights on secret text", 10)
        meter, examiner = Meter(self.examiner.seed, WINDOWS, self.learner), replace(self.examiner, runner=RUNNER)
        first = {"position": np.zeros(1, np.int64)} | given.empty_cache()
        with examiner.engine(examiner.runnable(self.written, RECIPE)) as engine:
            logits = [engine.infer({"tokens": window[None], **first})["logits"] for window in meter.tokens[:, :-1]]
        if not np.isfinite(logits).all():
            raise EngineError("the logits are NaN or infinite. Which scale is so large that a weight leaves FP16?")
        return meter.lost_by(np.concatenate(logits))

    @step
    def kernels(self) -> Kernels:
        """What the compiler makes of these weights."""
        table = self.examiner.with_rtx.build(self.written, RECIPE).layers
        if not set(PRODUCTS) <= {given.product_of(node) for kernel in table.kernels for node in kernel.onnx_nodes}:
            raise ExaminerFault(f"{RTX} does not show which kernels compute the products")
        return Kernels.of(table, self.stored)

    @step
    def written(self) -> Path:
        """The course's graph with these weights, as a file."""
        path = self.scratch / "decoder.onnx"
        path.write_bytes(given.decoder(self.stored, self.learner).SerializeToString())
        return path

    @step
    def rounded(self) -> Criterion:
        """Whether each stored weight is the given one, rounded."""
        wrong = []
        for name, weight in given.weights(self.learner).items():
            off = _relative(self.stored[name].values(), weight.T)
            mistake = _mistake(self.stored[name], weight.T, off)
            if mistake or off > _FAITHFUL:
                wrong.append(f"{name}: relative error {off:.2f}" + (f", {mistake}" if mistake else ""))
        hint = "Compare `Int4(packed, scales).values()` with the given weight of one product in the notebook."
        return all_right("products whose stored weight is the given one, rounded", wrong, len(PRODUCTS), HALF, hint=hint)


# ---- task 1


def packing(work: FourBitsWork) -> Iterator[Criterion]:
    """Bytes and codes, by their digests."""
    bytes_hint = "Print hex(...) of the bytes of [1, 2, -1, -8, 7], which you know from the lab's text."
    wrong = [line for name in ("even", "odd") if (line := _wrong(name, work.packed, np.dtype(np.uint8)))]
    yield all_right("arrays with the right bytes", wrong, 2, HALF, hint=bytes_hint)
    wrong = [line for name in ("codes",) if (line := _wrong(name, work.packed, np.dtype(np.int8)))]
    yield all_right("arrays with the right codes", wrong, 1, ALL, hint="Unpack what pack made of codes from -8 to 7.")


def _wrong(name: str, arrays: Mapping[str, np.ndarray], dtype: np.dtype) -> str:
    """What is wrong with an array, "" if it is right."""
    known, array = expected()["packing"][name], arrays.get(name)
    if array is None:
        return f"{name}: it is not in the file"
    as_expected = array.astype(dtype) if array.dtype.kind in "iu" else array  # keeps the low bits
    if digest(as_expected) != known["right"]:
        return f"{name}: {known['mistakes'].get(digest(as_expected), f'other numbers, of the shape {array.shape}')}"
    return f"{name}: the numbers are right, but their type is {array.dtype}" if array.dtype != dtype else ""


def digest(array: np.ndarray) -> str:
    """Of type, shape and numbers."""
    return hashlib.sha256(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


# ---- task 2

# By the way in which scales can be found, as in `expected.json`: how it shows, and where to look.
_WAYS = {
    "even": (
        "These are the best scales if all inputs count equally.",
        "Multiply each squared error with the importance of its input before you add the errors of a block.",
    ),
    "nearest": ("These are the scales of round to nearest.", "Try smaller scales for each block, and keep the best one."),
    "one": ("One fraction was chosen for a whole product.", "Blocks differ in their best scale."),
    "eight": ("The largest code is taken to be 8.", "Which is the largest code of lecture 16?"),
}


def search(work: FourBitsWork) -> Iterator[Criterion]:
    """The weighted error that the scales leave in each product, compared with recorded errors of the course's scales."""
    errors = {name: weighted_error(name, scales, work.learner) for name, scales in work.scales.items()}
    known = expected()["search"]
    work.figures["error_of_nearest"] = share = float(np.mean([errors[name] / known[name]["nearest"] for name in PRODUCTS]))
    yield at_most("mean error of the products, relative to round to nearest", share, 0.97, HALF, hint=_hint(errors, "even"))
    for way, needed_for in (("even", HALF), ("course", ALL)):
        wrong = [
            f"{name}: {errors[name] / known[name][way]:.2f}"
            for name in PRODUCTS
            if errors[name] > MOST_ERROR * known[name][way]
        ]
        against = "the course's scales leave" if way == "course" else "scales for equal importance leave"
        name = f"products with at most {MOST_ERROR:g} times the error that {against}"
        yield all_right(name, wrong, len(PRODUCTS), needed_for, hint=_hint(errors, way))


def weighted_error(name: str, scales: np.ndarray, learner: str = "") -> float:
    """The squared error of a product with the nearest codes from -7 to 7, each weighted with the importance of its input."""
    weight = given.weights(learner)[name]
    wide = np.repeat(scales.astype(np.float16).astype(np.float32), weight.shape[1] // scales.shape[1], axis=1)
    wrong = np.clip(np.rint(weight / wide), -7, 7) * wide - weight
    return float((given.importance(learner)[name] * wrong.astype(np.float64) ** 2).sum())


def _hint(errors: Mapping[str, float], way: str) -> str:
    """The usual way that leaves the errors that are too large, and where to look."""
    known = expected()["search"]
    wrong = [name for name in PRODUCTS if errors[name] > MOST_ERROR * known[name][way]]
    for usual, words in _WAYS.items():
        if wrong and all(abs(errors[name] / known[name][usual] - 1) < ALIKE for name in wrong):
            return " ".join(words)
    return "For one block, print scale, codes and weighted squared error. Which scales do you try, and how far apart are they?"


# ---- task 3


def size(work: FourBitsWork) -> Iterator[Criterion]:
    """Whether the weights are the given ones, what the decoder loses, and how many bits it stores."""
    yield work.rounded
    if not work.rounded.met:
        return
    bits = given.bits_per_weight(work.stored)
    work.figures |= {"bits_per_weight": bits, "lost_bits_per_byte": work.loss.mean}
    hint = "Measure each product alone: which of them lose most in INT4? They may need smaller blocks or FP8."
    yield _loss_criterion(work.loss, hint)
    hint = "Which products hardly lose anything in INT4? Begin with INT4 everywhere, and give more bits only to those that need them."
    yield at_most("bits per weight", bits, HALF_BITS, HALF, hint=hint)
    hint = "For each product and form: how much loss does it save, and how many more bits does it store? Take the best ratio first."
    yield at_most("bits per weight", bits, FULL_BITS, ALL, hint=hint)


def within_budget(loss: Lost) -> bool:
    """Whether the interval of the loss reaches down to the budget, and the loss itself is not far above it.

    An interval alone would forgive a decoder that loses very much on rare text: few bad windows make the interval wider than the mean.
    """
    return loss.mean - loss.half_width <= BUDGET and loss.mean <= MOST_ABOVE * BUDGET


def _loss_criterion(loss: Lost, hint: str) -> Criterion:
    bound = f"at most {BUDGET:g} within the interval"
    return Criterion("lost bits per byte on secret text", str(loss), bound, within_budget(loss), HALF, hint)


def _relative(values: np.ndarray, weight: np.ndarray) -> float:
    return float(np.linalg.norm(values - weight) / np.linalg.norm(weight))


def _mistake(one: Stored, weight: np.ndarray, off: float) -> str:
    """The mistake that explains an error, because the weight read in another way is much closer to the given one."""
    if off <= _USUAL or not isinstance(one, Int4):
        return ""
    codes = one.codes()
    with np.errstate(all="ignore"):
        return next(
            (words for words, read in _READINGS if _relative(Int4.times(*read(codes, one.scales)), weight) < 0.6 * off), ""
        )


def _by_columns(array: np.ndarray) -> np.ndarray:
    """The same numbers, where (out, in) was written in place of (in, out)."""
    return array.reshape(array.shape[::-1]).T


_TRANSPOSED = "the codes are in the order (out, in), and the graph reads (in, out)"
_READINGS: tuple[tuple[str, Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]], ...] = (
    (_TRANSPOSED, lambda codes, scales: (_by_columns(codes), scales)),
    (_TRANSPOSED, lambda codes, scales: (_by_columns(codes), _by_columns(scales))),
    ("the scales are in the order (out, in / block): do not reshape them", lambda codes, scales: (codes, _by_columns(scales))),
    (
        "the two codes of each byte are exchanged",
        lambda codes, scales: (codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape), scales),
    ),
    ("the codes are stored plus 8", lambda codes, scales: ((codes & 15) - 8, scales)),
    ("the scales are reciprocals", lambda codes, scales: (codes, 1 / scales.astype(np.float32))),
)


# ---- task 4


@dataclass(frozen=True)
class Kernels:
    """What a layer table says about the products.

    Attributes:
        as_stored: products whose own kernel reads the weight in the type in which the file stores it.
        expanding: products whose weight another kernel, which reads constants only, expands in each call.
        bits: constants of all these kernels, in bits per weight of the products.
    """

    as_stored: tuple[str, ...]
    expanding: tuple[str, ...]
    bits: float

    @classmethod
    def of(cls, table: LayerTable, stored: Mapping[str, Stored]) -> Kernels:
        """Read a layer table."""
        as_stored, expanding, bits = set(), set(), 0
        for kernel in table.kernels:
            products = {given.product_of(node) for node in kernel.onnx_nodes} - {""}
            if not products:
                continue
            bits += sum(_BITS.get(tensor.dtype, 32) * math.prod(tensor.shape) for tensor in kernel.weights)
            if not kernel.inputs:
                expanding |= products
                continue
            held = {(tensor.dtype, math.prod(tensor.shape)) for tensor in kernel.weights}
            multiplied = {given.product_of(node) for node in kernel.onnx_nodes if node.endswith("/MatMul")} - {""}
            as_stored |= {name for name in multiplied if (stored[name].layer_type, math.prod(PRODUCTS[name])) in held}
        return cls(tuple(sorted(as_stored - expanding)), tuple(sorted(expanding)), bits / given.WEIGHTS)


def plan(work: FourBitsWork) -> Iterator[Criterion]:
    """Which kernel reads which weight, if the decoder is within the budget."""
    yield work.rounded
    if not work.rounded.met:
        return
    yield _loss_criterion(work.loss, "Solve task 3 first.")
    if not within_budget(work.loss):
        return
    kernels = work.kernels
    hint = "Print the constants of the kernels of each product, with their types. Which are larger than in your file?"
    if kernels.expanding:
        yield holds(f"no kernel expands a weight in each call ({', '.join(kernels.expanding)})", False, hint=
                    "Which block do these products have? Print the kernels of one of them for each block size.")  # fmt: skip
    bits_hint = hint if kernels.bits > given.bits_per_weight(work.stored) + 0.1 else "Solve task 3 with fewer bits first."
    name = "products whose kernel reads the weight as it is stored"
    for count, bits, needed_for in ((HALF_PRODUCTS, HALF_BITS, HALF), (FULL_PRODUCTS, FULL_BITS, ALL)):
        yield at_least(name, len(kernels.as_stored), count, needed_for, hint=hint)
        yield at_most("constants of these kernels, in bits per weight", kernels.bits, bits, needed_for, hint=bits_hint)
