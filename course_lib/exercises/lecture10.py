"""Exercises of lecture 10: one call from its parts, queues, sets of buffers, graphs, and one answer in raw calls on the stand-in."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

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


_FRAMES = [0, 10, 20, 30, 40, 50]
_A, _B = ((8, 1, 32, 32), 4096), ((8, 1, 32, 32), 8192)
_C = ((4, 1, 32, 32), 4096)

EXERCISES = (
    Exercise(
        id="10.1",
        title="One request from its parts",
        minutes=15,
        difficulty=2,
        importance=3,
        call="run_request(context, driver, stream, buffers, images)",
        hint="Follow the table at the start of the lecture: shape, copy in, execute, copy out, wait.",
        examine=_one_call,
    ),
    Exercise(
        id="10.2",
        title="Frames and double buffers",
        minutes=15,
        difficulty=3,
        importance=3,
        call="finished_ms(copy_in, compute, copy_out, requests, sets)",
        hint="Draw three rows, one for each unit, and mark when each set of buffers is free again.",
        cases=(
            Case(
                (3, 2, 3, 4, 2),
                19,
                {
                    "You let copies overlap with kernels but forgot the buffers: request 2 needs the set of request 0.": 17,
                    "That is one request after the other. The three units can work at the same time on different requests.": 32,
                    "That is when the last kernel ends. Its result must also be copied out.": 16,
                    "That is the slowest unit alone. The first copy in and the last copy out do not overlap with it.": 12,
                },
            ),
            Case(
                (3, 2, 3, 4, 1),
                32,
                {"With one set, the next copy in must wait for the copy out before it: nothing overlaps.": 17},
            ),
            Case((3, 2, 3, 4, 3), 17, {"With three sets, request 2 does not wait for request 0.": 19}),
        ),
    ),
    Exercise(
        id="10.3",
        title="A queue with a limit",
        minutes=15,
        difficulty=2,
        importance=2,
        call="queue_latencies(arrivals_ms, call_ms, room)",
        hint="Write down for each arrival: until when is the engine busy, and how many frames wait?",
        cases=(
            Case(
                (_FRAMES, 25, 1),
                [25, 40, -1, 45, -1, 50],
                {
                    "You have no limit: a frame that finds `room` frames waiting is lost.": [25, 40, 55, 70, 85, 100],
                    "You counted the running frame as a waiting one. It has left the queue.": [25, -1, -1, 25, -1, -1],
                    "Those are the waiting times. A latency also contains the call.": [0, 15, -1, 20, -1, 25],
                    "Those are the times of the answers. A latency begins with the arrival.": [25, 50, -1, 75, -1, 100],
                    "You dropped the oldest waiting frame. This queue loses the one that arrives.": [25, -1, 30, -1, 35, 50],
                },
            ),
            Case(
                ([0, 10, 30], 25, 0),
                [25, -1, 25],
                {
                    "An idle engine takes a frame at once, even if no frame may wait.": [-1, -1, -1],
                    "The engine was idle before the last frame came: a call cannot start before its frame arrives.": [
                        25,
                        -1,
                        20,
                    ],
                },
            ),
            Case(
                ([0, 100], 25, 2),
                [25, 25],
                {"The engine was idle when the second frame came, so its call starts at 100.": [25, -50]},
            ),
        ),
    ),
    Exercise(
        id="10.4",
        title="When is a graph captured?",
        minutes=10,
        difficulty=2,
        importance=2,
        call="graph_steps(states)",
        hint="Keep two things: the state of the last plain run, and the state of the graph.",
        cases=(
            Case(
                ([_A, _A, _A, _A],),
                ["plain", "capture", "replay", "replay"],
                {
                    "The first run must be plain: it allocates memory and loads kernels, which a capture forbids.": [
                        "capture",
                        "replay",
                        "replay",
                        "replay",
                    ],
                    "You never replay. A state that was captured is launched as a whole.": [
                        "plain",
                        "capture",
                        "capture",
                        "capture",
                    ],
                    "You captured a state in its third run. One plain run is enough.": ["plain", "plain", "capture", "replay"],
                },
                shown="graph_steps([A, A, A, A])",
            ),
            Case(
                ([_A, _A, _B, _B, _B],),
                ["plain", "capture", "plain", "capture", "replay"],
                {
                    "State B has the shape of A but another address. The graph of A would read the old memory.": [
                        "plain",
                        "capture",
                        "replay",
                        "replay",
                        "replay",
                    ],
                    "B is a new state, and its first run is plain, too.": ["plain", "capture", "capture", "replay", "replay"],
                },
                shown="graph_steps([A, A, B, B, B]), where B has another address",
            ),
            Case(
                ([_A, _A, _C, _C],),
                ["plain", "capture", "plain", "capture"],
                {"State C has the address of A but another shape: compare both.": ["plain", "capture", "replay", "replay"]},
                shown="graph_steps([A, A, C, C]), where C has another shape",
            ),
            Case(
                ([_A, _A, _B, _A],),
                ["plain", "capture", "plain", "replay"],
                {
                    "The run of B was plain, so the graph of A still exists and is valid. Forget it only when you capture another.": [
                        "plain",
                        "capture",
                        "plain",
                        "plain",
                    ],
                    "The graph of A still exists after the plain run of B: replay it instead of a second capture.": [
                        "plain",
                        "capture",
                        "plain",
                        "capture",
                    ],
                },
                shown="graph_steps([A, A, B, A])",
            ),
            Case(
                ([_A, _A, _B, _B, _A],),
                ["plain", "capture", "plain", "capture", "plain"],
                {
                    "Only one graph is kept, and the capture of B replaced that of A.": [
                        "plain",
                        "capture",
                        "plain",
                        "capture",
                        "replay",
                    ]
                },
                shown="graph_steps([A, A, B, B, A])",
            ),
        ),
    ),
    Exercise(
        id="10.5",
        title="One answer in raw calls",
        minutes=10,
        difficulty=2,
        importance=3,
        call="one_answer(trt, cuda, plan, x)",
        hint="Follow the table at the start of the lecture, one line for each call.",
        examine=_raw_calls,
    ),
)
