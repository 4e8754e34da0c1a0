"""Pipelines in their own processes: the network that they run, streams of scans, and what is recorded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.engines import Plan, Worker, split_target
from course_lib.errors import EngineError
from course_lib.labs.framework import instance
from course_lib.labs.framework.examination import MOST_ANSWERED, Examiner, TimedWorker
from course_lib.labs.framework.reference import ours as our_work
from course_lib.labs.lab10_profiling import given as lab10_given
from course_lib.labs.lab10_profiling.sandboxed.pipeline import CODES, ENGINE_ROW, START
from course_lib.labs.lab10_profiling.sandboxed.pipeline import __name__ as pipeline_module
from course_lib.models import digits, fresh_digits
from course_lib.profiling import Event, Timeline
from course_lib.profiling.timelines.timeline import Kind
from course_lib.recipe import Profile, Recipe

_BATCHES = Profile(image={"min": (1, 1, 32, 32), "opt": (32, 1, 32, 32), "max": (32, 1, 32, 32)})
_WIDTH = 1280
_RIDGE = 1.0
Stream = Mapping[str, np.ndarray]
SCAN = 64  # pixels along each side
_NOISE = 3  # gray levels that a scanner is off by, at most
TIME_LIMIT_S = 20.0  # for one stream; the given pipeline takes half a second
_MOST_EVENTS = 200_000
_LONGEST_NAME = 60


@cache
def network() -> bytes:
    """An ONNX file, opset 17: ``image`` float32 (n, 1, 32, 32), ink from 0 to 1, to ``logits`` (n, 10).

    Random features with a linear readout that is fitted in closed form: no training, and it reads 99 % of the held-out digits.
    Source: Huang, Zhu, Siew, "Extreme learning machine: theory and applications", Neurocomputing 70 (2006).
    """
    from onnx import TensorProto, helper, numpy_helper

    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 32, 32])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    first, second, readout = (numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(_weights()))
    nodes = [
        helper.make_node("Flatten", ["image"], ["pixels"], name="flatten"),
        helper.make_node("MatMul", ["pixels", "w0"], ["product0"], name="first"),
        helper.make_node("Relu", ["product0"], ["features0"], name="relu0"),
        helper.make_node("MatMul", ["features0", "w1"], ["product1"], name="second"),
        helper.make_node("Relu", ["product1"], ["features1"], name="relu1"),
        helper.make_node("MatMul", ["features1", "w2"], ["logits"], name="readout"),
    ]
    graph = helper.make_graph(nodes, "reader", [image], [logits], [first, second, readout])
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


def _weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, train = np.random.default_rng(7), digits("train")
    inputs = train.images.reshape(len(train), -1)
    first = rng.normal(0, (2 / inputs.shape[1]) ** 0.5, (inputs.shape[1], _WIDTH)).astype(np.float32)
    second = rng.normal(0, (2 / _WIDTH) ** 0.5, (_WIDTH, _WIDTH)).astype(np.float32)
    features = np.maximum(np.maximum(inputs @ first, 0) @ second, 0).astype(np.float64)
    target = 2.0 * np.eye(10)[train.labels] - 1
    readout = np.linalg.solve(features.T @ features + _RIDGE * np.eye(_WIDTH), features.T @ target)
    return first, second, readout.astype(np.float32)


def fresh_stream(sizes: Sequence[int], rng: np.random.Generator) -> Stream:
    """Requests of the given numbers of fresh scans.

    A scan is `SCAN` x `SCAN` gray levels in uint8, 0 is black and 255 is paper, row by row, compressed with zlib.

    Returns:
        ``bytes``, all scans in sequence, uint8; ``lengths``, bytes of each scan; ``sizes``, scans of each request; int64.
    """
    scans = [] if sum(sizes) == 0 else [zlib.compress(scan.tobytes()) for scan in _scans(sum(sizes), rng)]
    return {
        "bytes": np.frombuffer(b"".join(scans), np.uint8),
        "lengths": np.array([len(scan) for scan in scans], np.int64),
        "sizes": np.array(sizes, np.int64),
    }


def _scans(n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    ink = fresh_digits(n, seed=int(rng.integers(1 << 31))).images[:, 0].repeat(2, axis=1).repeat(2, axis=2)
    gray = 255 * (1 - ink) + rng.integers(-_NOISE, _NOISE + 1, ink.shape)
    yield from gray.clip(0, 255).astype(np.uint8)


def usual_sizes(rng: np.random.Generator, requests: int = 8) -> list[int]:
    """Numbers of scans in the requests of the service: 8 to 32, 20 on average."""
    return [int(n) for n in rng.integers(8, 33, requests)]


RECORDED = tuple(usual_sizes(np.random.default_rng(7), 16))  # scans in the requests of a recording: the same in every one


class PipelineWorker(Worker):
    """A process that runs a pipeline in place of an engine."""

    program = pipeline_module


# Suspects that cost time in some pipelines and not in others: the form in `given.py`, and the other one. Each costs about as much as
# the engine's work for one image at a time, 1.2 to 1.6 ms of a loaded core for each scan.
FORMS: Mapping[str, tuple[str, str]] = {
    "engine": ("engine = self.open_engine()\n", "engine = self.ready\n"),
    "conversion": (
        """message = json.dumps(list(gray.tobytes()))  # the decoder was a service of its own once
                gray = np.frombuffer(bytes(json.loads(message)), np.uint8).reshape(64, 64)
""",
        """message = gray.tobytes()  # the decoder was a service of its own once
                gray = np.frombuffer(message, np.uint8).reshape(64, 64)
""",
    ),
    "pixels": (
        """rows = gray.tolist()
                image = np.zeros((32, 32), np.float32)
                for y in range(0, 64, 2):
                    for x in range(0, 64, 2):
                        paper = (rows[y][x] + rows[y][x + 1] + rows[y + 1][x] + rows[y + 1][x + 1]) / (4 * 255)
                        image[y // 2, x // 2] = min(max(1 - paper, 0), 1)
""",
        """rows = gray.astype(np.uint16)
                paper = rows[::2, ::2] + rows[::2, 1::2] + rows[1::2, ::2] + rows[1::2, 1::2]
                image = (1 - paper / (4 * 255)).astype(np.float32)
""",
    ),
    "logging": ("digit {rows[-1].argmax()}", "digit {rows[-1].argmax()}, pixels {image.tolist()}"),
    "lock": (
        """with self.span("lock"), self.lock:
                self.seen += 1
""",
        """with self.span("lock"):
                for _ in range(64 * 32):  # pairs of pixels
                    with self.lock:
                        self.seen += 1
""",
    ),
    "compression": (
        """gray = np.frombuffer(zlib.decompress(scan), np.uint8).reshape(64, 64)
""",
        """unpack = zlib.decompressobj()
                parts = [unpack.decompress(scan[i : i + 3]) for i in range(0, len(scan), 3)]  # as a network sends them
                gray = np.frombuffer(b"".join(parts), np.uint8).reshape(64, 64)
""",
    ),
}
COSTLY_IN_FILE = frozenset(("engine", "conversion", "pixels"))


def costly(learner: str) -> frozenset[str]:
    """Which suspects of `FORMS` cost time in a learner's pipeline: three of them. One image at a time costs time in each pipeline."""
    return frozenset(instance.rng(learner, "lab10").choice(sorted(FORMS), 3, replace=False).tolist())


def given(learner: str = "") -> str:
    """The text of a learner's given pipeline; without an id, the one in `given.py`."""
    text = Path(lab10_given.__file__).read_text(encoding="utf-8")
    for suspect in sorted(costly(learner) ^ COSTLY_IN_FILE) if learner else ():
        text = text.replace(*FORMS[suspect])
    return text


@cache
def plan(runner: str) -> Plan:
    """The lab's engine for a runner.

    Raises:
        ExaminerFault: it cannot be built.
    """
    with our_work(), TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(network())
        return Examiner(runner=runner).runnable(model, Recipe(profiles=(_BATCHES,)))


@contextmanager
def started(source: str, examiner: Examiner, *, ours: bool = False, record: bool = False) -> Iterator[TimedWorker]:
    """A process with the pipeline of this text, ready for streams. Leaving the block ends it and its child processes.

    Args:
        ours: the text is the course's own, so every failure is the examiner's fault.
        record: keep the ranges that the pipeline names, for `record`. Without it they cost nothing.

    Raises:
        EngineError: the pipeline cannot be made.
    """
    _, environment = split_target(examiner.runner)
    launcher = (examiner.for_ours if ours else examiner).launcher
    worker = PipelineWorker(environment, launcher=launcher, timeout_s=TIME_LIMIT_S, most_bytes=MOST_ANSWERED, codes=CODES)
    with TimedWorker.start(worker, plan(examiner.runner), ours=ours) as service:
        service.infer({"source": np.frombuffer(source.encode(), np.uint8), "record": np.array(record)})
        yield service


def answers(service: TimedWorker, stream: Stream) -> list[np.ndarray]:
    """Logits of each request, float32 ``(scans, 10)``.

    Raises:
        EngineError: it failed, or answered something else.
    """
    found = service.infer(stream)
    logits, sizes = found.get("logits"), found.get("sizes")
    if logits is None or sizes is None or not _fit(logits, sizes):
        raise EngineError("the pipeline's process sent an invalid answer")
    return np.split(logits, np.cumsum(sizes)[:-1]) if len(sizes) else []


def _fit(logits: np.ndarray, sizes: np.ndarray) -> bool:
    """Whether these are rows of ten float32, and how many of them belong to each request."""
    if logits.dtype != np.float32 or logits.ndim != 2 or logits.shape[1] != 10 or sizes.dtype != np.int64 or sizes.ndim != 1:
        return False
    return bool((sizes >= 0).all() and (sizes <= len(logits)).all() and sizes.sum() == len(logits))


def record(source: str, examiner: Examiner | None = None, *, ours: bool = False) -> Timeline:
    """Ranges of a pipeline, from its start through a stream of fresh scans in `RECORDED` requests, and the engine's work.

    Args:
        source: the text of pipeline.py.
        ours: as for `started`.

    Returns:
        Microseconds since the first range began. The engine's work has its own row and counts as the device's.

    Raises:
        EngineError: the pipeline fails.
    """
    examiner = examiner or Examiner()
    stream = fresh_stream(RECORDED, examiner.rng())
    with started(source, examiner, ours=ours, record=True) as service:
        answers(service, stream)
        return read_recording(service.infer({"events": np.array(True)}))


def read_recording(found: Mapping[str, np.ndarray]) -> Timeline:
    """The timeline in a child's answer, which may be hostile.

    Raises:
        EngineError: the answer is not a timeline.
    """
    try:
        rows = [line.split("\t", 2) for line in found["events"].tobytes().decode().split("\n")[:_MOST_EVENTS]]
        times = [[int(word) / 1e3 for word in words.split(" ")] for words, _, _ in rows]
        zero, events = min(start for start, _ in times), []
        for (start, end), (_, row, name) in zip(times, rows, strict=True):
            kind: Kind = "kernel" if row == ENGINE_ROW else "range"
            events.append(Event(name[:_LONGEST_NAME], kind, start - zero, end - start, row[:_LONGEST_NAME]))
        return Timeline(tuple(events), (0.0, max(event.end_us for event in events)))
    except (KeyError, ValueError, OverflowError):
        raise EngineError("the pipeline's process sent an invalid answer") from None


def serving(timeline: Timeline) -> Timeline:
    """The recording without the pipeline's start, which happens once: from the first request to the last answer."""
    begin = max((event.end_us for event in timeline.events if event.row == START), default=0.0)
    events = tuple(event for event in timeline.events if event.start_us >= begin)
    if not events:
        return timeline
    return Timeline(events, (min(event.start_us for event in events), max(event.end_us for event in events)))


def shares(timeline: Timeline) -> dict[str, float]:
    """Share of the serving time for each range, without the start. A range inside another range counts in both."""
    served = serving(timeline)
    return {row.name: row.total_us / (served.span_us or 1.0) for row in served.summary() if row.kind == "range"}
