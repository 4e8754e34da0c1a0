"""What lab 09 gives: the scorer and its engine, requests, and the times of sets of buffers that take turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from course_lib.standin.costs import Schedule, schedule
from course_lib.standin.gpu import Row

VERSION = "10.16"  # of TensorRT, for the stand-in
COLUMNS, SCORES = 128, 32
INPUT, OUTPUT = "features", "scores"
PROFILES = ((1, 4, 8), (9, 32, 64))  # smallest, most common and largest number of rows
MOST_ROWS = PROFILES[-1][-1]
PLAIN, MIXED, BROKEN = "plain", "mixed", "broken"
_HIDDEN = 64
_NETWORK = f"""
<ir_version: 8, opset_import: ["": 17]>
scorer (float[rows, {COLUMNS}] {INPUT}) => (float[rows, {SCORES}] {OUTPUT}) {{
  product = MatMul({INPUT}, first)
  hidden = Relu(product)
  {OUTPUT} = MatMul(hidden, second)
}}"""


@cache
def model() -> bytes:
    """A serialized ONNX model: two products and a ReLU, float32 ``features (N, 128)`` to ``scores (N, 32)``."""
    import onnx

    made, rng = onnx.parser.parse_model(_NETWORK), np.random.default_rng(12)
    for name, size in {"first": (COLUMNS, _HIDDEN), "second": (_HIDDEN, SCORES)}.items():
        weight = (rng.standard_normal(size) / np.sqrt(size[0])).astype(np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return bytes(made.SerializeToString())


def serialized_engine(trt: Any, onnx_model: bytes = b"") -> bytes:
    """The plan that a module `tensorrt` builds, a real one or a stand-in.

    It computes in FP32 and not in TF32, so that a loop's scores are those of ONNX Runtime. Several contexts can use one profile.

    Args:
        onnx_model: what `model` returned in an interpreter that has onnx; empty to call it here.

    Raises:
        RuntimeError: the builder or the parser rejected the network.
    """
    from course_lib.engines.backends.tensorrt.config import network_flags, restrict_tactic_sources, share_profiles

    logger = trt.Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(network_flags(trt))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx_model or model()):
        raise RuntimeError(f"the parser rejected the scorer: {parser.get_error(0).desc()}")
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    restrict_tactic_sources(trt, config)
    share_profiles(trt, config)
    for rows in PROFILES:
        profile = builder.create_optimization_profile()
        profile.set_shape(INPUT, *((size, COLUMNS) for size in rows))
        config.add_optimization_profile(profile)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise RuntimeError("the builder rejected the scorer: its log says why")
    return bytes(serialized)


@cache
def plan() -> bytes:
    """The plan of the stand-in, which the grader gives to a serving loop."""
    from course_lib.standin import tensorrt_module

    return serialized_engine(tensorrt_module.make(VERSION))


def scores(features: np.ndarray) -> np.ndarray:
    """Float32 ``(n, 32)`` for float32 ``(n, 128)``, by ONNX Runtime on the CPU."""
    return _runner().run({INPUT: np.ascontiguousarray(features, np.float32)})[OUTPUT]


@cache
def _runner() -> Any:
    from course_lib.standin.onnx_model import OnnxModel

    return OnnxModel(model())


@dataclass(frozen=True)
class Scene:
    """One call of `serve`.

    Attributes:
        name: `PLAIN`, `MIXED` or `BROKEN`.
        requests: float32 arrays in any order in memory; a profile contains ``(1 to 64, 128)``.
        breaks_off: the iterator of requests raises `ConnectionError` after the last one.
    """

    name: str
    requests: tuple[np.ndarray, ...]
    breaks_off: bool = False

    def __iter__(self) -> Iterator[np.ndarray]:
        yield from self.requests
        if self.breaks_off:
            raise ConnectionError("the client closed the connection")


def fits(request: np.ndarray) -> bool:
    """Whether a profile contains this request."""
    return request.ndim == 2 and request.shape[1] == COLUMNS and 1 <= len(request) <= MOST_ROWS


def scenes(rng: np.random.Generator) -> tuple[Scene, ...]:
    """Requests that all fit, then some that no profile contains among others, then a connection that breaks off.

    The second scene ends with a request that is rejected after one of the other profile: a loop that switches first has to wait.
    """
    small, large = PROFILES[0][-1], MOST_ROWS
    plain = [*rng.integers(1, small + 1, 5), small, small + 1, *rng.integers(small + 1, large + 1, 10), large]
    mixed = [*rng.integers(1, small + 1, 2), *rng.integers(small + 1, large + 1, 3)]
    broken = [*rng.integers(1, small + 1, 2), *rng.integers(small + 1, large + 1, 3)]
    few, many = (_drawn(rng, int(count)) for count in (rng.integers(1, small + 1), rng.integers(small + 1, large + 1)))
    pairs = (
        (few, _drawn(rng, large + int(rng.integers(1, 40)))),
        (many, _drawn(rng, 0)),
        (many, _drawn(rng, 5, COLUMNS - 1 if rng.random() < 0.5 else int(rng.integers(1, COLUMNS)))),
        (few, _drawn(rng, 5, COLUMNS + 1 if rng.random() < 0.5 else int(rng.integers(COLUMNS + 1, 3 * COLUMNS)))),
    )
    last = pairs[rng.integers(len(pairs))]
    others = [rejected for _, rejected in pairs if rejected is not last[1]] + [few if last[0] is many else many]
    return (
        Scene(PLAIN, _shuffled(rng, _several(rng, plain))),
        Scene(MIXED, (*_shuffled(rng, [*_several(rng, mixed), *others]), *last)),
        Scene(BROKEN, _shuffled(rng, _several(rng, broken)), breaks_off=True),
    )


def _several(rng: np.random.Generator, rows: Sequence[int]) -> list[np.ndarray]:
    return [_drawn(rng, int(count)) for count in rows]


def _drawn(rng: np.random.Generator, rows: int, columns: int = COLUMNS) -> np.ndarray:
    """Rows in C order, in Fortran order, or with gaps: code that takes the elements in the order of the memory is wrong."""
    values = rng.standard_normal((rows, columns)).astype(np.float32)
    if rng.random() < 0.5:
        return np.asfortranarray(values)
    wide = np.zeros((rows, 2 * columns), np.float32)
    wide[:, ::2] = values
    return wide[:, ::2]


def _shuffled(rng: np.random.Generator, requests: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(requests[index] for index in rng.permutation(len(requests)))


def turns(requests: Sequence[np.ndarray], sets: int) -> Schedule:
    """The times if `sets` sets of a stream, a context and buffers take turns, and the host waits for a set before it is used again.

    One set is the serial loop: copy, run, copy, wait.
    """
    rows: list[Row] = []
    profiles = [0] * sets
    waiting: list[int] = []
    for index, request in enumerate(request for request in requests if fits(request)):
        used, count = index % sets, len(request)
        stream = 1 + used
        if len(waiting) == sets:
            rows.append(["sync_stream", waiting.pop(0)])
        profile = next(number for number, (_, _, high) in enumerate(PROFILES) if count <= high)
        if profile != profiles[used]:
            rows.append(["profile", stream, used, profile])
            profiles[used] = profile
        rows += [
            ["in", stream, 0, request.nbytes, 1, 0, b"", False],
            ["run", stream, used, profile, {INPUT: request.shape}, {}, {}],
            ["out", stream, 0, 4 * count * SCORES, 1, 0],
        ]
        waiting.append(stream)
        if sets == 1:
            rows.append(["sync_stream", waiting.pop()])
    return schedule([*rows, *(["sync_stream", stream] for stream in waiting)])
