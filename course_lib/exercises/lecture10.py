"""Exercises of lecture 10: one call from its parts, queues, sets of buffers, graphs, and one answer in raw calls on the stand-in."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, NotYet

_ROOM = 8  # the largest batch of the stand-in's profile


class _Stream:
    """A stand-in for a stream: work waits in order, and nothing happens before `synchronize`."""

    handle = 7

    def __init__(self) -> None:
        self.work: list[Callable[[], None]] = []
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1
        while self.work:
            self.work.pop(0)()


class _Driver:
    """The two copies of pycuda's driver. An array stands for device memory."""

    def __init__(self) -> None:
        self.bytes_in = 0

    def memcpy_htod_async(self, device: np.ndarray, host: np.ndarray, stream: _Stream) -> None:
        self.bytes_in += host.nbytes
        stream.work.append(lambda: self._copy(device, host))

    def memcpy_dtoh_async(self, host: np.ndarray, device: np.ndarray, stream: _Stream) -> None:
        stream.work.append(lambda: self._copy(host, device))

    @staticmethod
    def _copy(target: np.ndarray, source: np.ndarray) -> None:
        rows = min(len(target), len(source))
        target[:rows] = source[:rows]


class _Context:
    """The calls of `IExecutionContext` that a request makes. The network returns the sum and the maximum of each image."""

    def __init__(self, stream: _Stream, buffers: Any) -> None:
        self.stream, self.buffers = stream, buffers
        self.shape: tuple[int, ...] = (1, 4)
        self.ran: list[int] = []

    def set_input_shape(self, name: str, shape: Any) -> bool:
        batch, *features = shape
        fits = name == "image" and features == [4] and 1 <= batch <= _ROOM
        if fits:
            self.shape = (batch, *features)
        return fits

    def execute_async_v3(self, handle: int) -> bool:
        rows = self.shape[0]
        self.ran.append(rows)
        self.stream.work.append(lambda: self._run(rows))
        return handle == self.stream.handle

    def _run(self, rows: int) -> None:
        images = self.buffers.device_in[:rows]
        self.buffers.device_out[:rows] = np.stack([images.sum(1), images.max(1)], axis=1)


def _one_call(run_request: Answer) -> None:
    """Two requests and a rejected one. A stale or shared answer shows which step is missing."""
    stream, driver = _Stream(), _Driver()
    names = {"host_in": 4, "device_in": 4, "host_out": 2, "device_out": 2}
    buffers = SimpleNamespace(**{name: np.zeros((_ROOM, columns), np.float32) for name, columns in names.items()})
    context = _Context(stream, buffers)
    requests = [np.arange(12, dtype=np.float32).reshape(3, 4), np.full((2, 4), 5, np.float32)]
    call = "run_request(context, driver, stream, buffers, images)"
    answers = []
    for number, images in enumerate(requests):
        images.flags.writeable = False
        expected = np.stack([images.sum(1), images.max(1)], axis=1)
        found = run_request(context, driver, stream, buffers, images)
        if not same(found, expected):
            raise NotYet(
                f"`{call}` returned {shown(found)}, expected {shown(expected)}. {_why(found, context, stream, images)}"
            )
        _frugal(context, driver, stream, requests[: number + 1], call)
        answers.append((found, expected))
    if not same(*answers[0]):
        raise NotYet(
            f"After a second request, the result of the first is {shown(answers[0][0])}, expected {shown(answers[0][1])}. "
            "Both results share `host_out`: return a copy."
        )
    try:
        found = run_request(context, driver, stream, buffers, np.zeros((_ROOM + 1, 4), np.float32))
    except NotYet as problem:
        if isinstance(problem.__cause__, ValueError) and "could not broadcast" not in str(problem.__cause__):
            return
        raise NotYet(
            f"For {_ROOM + 1} images the function failed with {type(problem.__cause__).__name__}, expected your own ValueError. "
            "Set the shape and check the returned value before you write into a buffer."
        ) from problem
    raise NotYet(
        f"For {_ROOM + 1} images `{call}` returned {shown(found)}, expected a ValueError. "
        "`set_input_shape` returned False, because the profile ends at 8, and the old shape stayed set."
    )


def _why(found: Any, context: _Context, stream: _Stream, images: np.ndarray) -> str:
    """The step that is missing, by what the answer looks like."""
    array = np.asarray(found)
    if not context.ran:
        return "The engine did not run: call `context.execute_async_v3(stream.handle)`."
    if array.shape == (_ROOM, 2):
        return "You returned the whole buffer. Only the first rows belong to this request."
    if context.ran[-1] != len(images):
        return f"The engine ran {context.ran[-1]} images: set the shape of this request with `set_input_shape`."
    if stream.work:
        return "The work still waits in the stream: synchronize before you read `host_out`."
    return "Use this order on the stream: copy in, execute, copy out. Write into `host_in` before the first copy."


def _frugal(context: _Context, driver: _Driver, stream: _Stream, requests: list[np.ndarray], call: str) -> None:
    """The answer is right: did it also wait once, and copy and compute only what the request needs?"""
    if stream.waits > len(requests):
        raise NotYet(
            f"`{call}` waited {stream.waits} times for {len(requests)} request(s), expected once each. "
            "The stream keeps copies and kernels in order, so only the end needs a `synchronize`."
        )
    rows = sum(map(len, requests))
    if sum(context.ran) != rows:
        raise NotYet(
            f"The engine computed {sum(context.ran)} images for {rows}. Set the shape of the request, not that of the buffer."
        )
    needed = sum(images.nbytes for images in requests)
    if driver.bytes_in != needed:
        raise NotYet(
            f"{driver.bytes_in} bytes were copied to the device, expected {needed}. "
            "Copy only the rows of this request: `host_in[:n]`."
        )


_LOST = "The device was lost: an address is not one of device memory, or a buffer is smaller than its tensor."


def _raw_calls(one_answer: Answer) -> None:
    """Two answers of an engine that squares its input, each on a device of its own that records what is called."""
    from course_lib.standin import cuda_driver, gpu, tensorrt_module

    trt = tensorrt_module.make("10.16")
    plan = _squaring_plan(trt)
    call = "one_answer(trt, cuda, plan, x)"
    for rows in (2, 5):
        x = np.arange(1, 4 * rows + 1, dtype=np.float32).reshape(rows, 4)
        trace: list[list[Any]] = []
        with gpu.another(trace):
            cuda_driver.Context().push()
            try:
                found = one_answer(trt, cuda_driver, plan, x)
            except NotYet as problem:
                if any(row[0] == "lost" for row in trace):
                    raise NotYet(f"`{call}` failed. {_LOST}") from problem
                raise
            finally:
                cuda_driver.Context.pop()
        if not same(found, x * x):
            why = _missing(trace) or "Write each call in the order of the table, and return the rows of `y`."
            raise NotYet(f"`{call}` returned {shown(found)}, expected {shown(x * x)}. {why}")


def _squaring_plan(trt: Any) -> bytes:
    """``y = x * x`` for float32 ``(1 to 8, 4)``."""
    import onnx

    from course_lib.engines.backends.tensorrt.config import network_flags

    text = '<ir_version: 8, opset_import: ["": 17]> square (float[N, 4] x) => (float[N, 4] y) { y = Mul(x, x) }'
    logger = trt.Logger()
    builder = trt.Builder(logger)
    network = builder.create_network(network_flags(trt))
    trt.OnnxParser(network, logger).parse(onnx.parser.parse_model(text).SerializeToString())
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    profile.set_shape("x", (1, 4), (4, 4), (_ROOM, 4))
    config.add_optimization_profile(profile)
    return bytes(builder.build_serialized_network(network, config))


def _missing(trace: list[list[Any]]) -> str:
    """The call that is missing or too early, by what a device recorded; "" if all are there."""
    kinds = [row[0] for row in trace]
    reasons = " ".join(row[3] for row in trace if row[0] == "rejected")
    if "Input shapes are not set" in reasons:
        return "`execute_async_v3` returned False, because the shape of `x` is not set."
    if "address" in reasons.lower():
        return "`execute_async_v3` returned False, because a tensor has no address. Both `x` and `y` need one."
    if "run" not in kinds:
        return "The engine did not run: call `execute_async_v3(stream.handle)`."
    run = kinds.index("run")
    if "in" not in kinds[:run]:
        return "When the engine ran, no copy had brought `x` to the device."
    if "out" not in kinds[run:]:
        return "No copy brought `y` from the device after the run."
    if not any(kind.startswith("sync") for kind in kinds[run + kinds[run:].index("out") :]):
        return "Everything is enqueued, and nothing waits: call `stream.synchronize()` before you read `y`."
    return ""


EXAMINATIONS = {"10.1": _one_call, "10.5": _raw_calls}
