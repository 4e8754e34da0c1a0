"""Pipelines in their own processes: run on streams, timed from outside, recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.engines import Environment, Plan, Worker, split_target
from course_lib.errors import EngineError
from course_lib.labs.framework.examination import MOST_ANSWERED, Examiner, TimedWorker
from course_lib.labs.framework.reference import ours as our_work
from course_lib.labs.lab10_profiling import given as lab10_given
from course_lib.labs.lab10_profiling import network
from course_lib.labs.lab10_profiling import reference as lab10_reference
from course_lib.labs.lab10_profiling.sandboxed import stream_host
from course_lib.labs.lab10_profiling.sandboxed.pipeline import CODES, ENGINE_ROW
from course_lib.labs.lab10_profiling.stream import Stream, fresh_stream, usual_sizes
from course_lib.profiling import Event, Timeline
from course_lib.profiling.timelines.timeline import Kind

RECORDED = tuple(usual_sizes(np.random.default_rng(7), 16))  # scans in the requests of a recording: the same in every one
TIME_LIMIT_S = 20.0  # for one stream; the given pipeline takes half a second
_MOST_EVENTS = 200_000
_LONGEST_NAME = 60


def given() -> str:
    """The text of the given pipeline."""
    return _text(lab10_given.__file__)


def reference(left: tuple[str, ...] = ()) -> str:
    """The text of the reference, with some causes left in."""
    assignment = "LEFT: tuple[str, ...] = {!r}"
    return _text(lab10_reference.__file__).replace(assignment.format(lab10_reference.LEFT), assignment.format(left))


def _text(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def plan(examiner: Examiner) -> Plan:
    """The lab's engine for the examiner's runner.

    Raises:
        ExaminerFault: it cannot be built.
    """
    with our_work():
        return _built(examiner.runner)


@cache
def _built(runner: str) -> Plan:
    with TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(network.exported())
        return Examiner(runner=runner).runnable(model, network.recipe())


@contextmanager
def started(source: str, examiner: Examiner, *, ours: bool = False, record: bool = False) -> Iterator[TimedWorker]:
    """A process with the pipeline of this text, ready for streams. Leaving the block ends it and its child processes.

    Args:
        ours: the text is the course's own, so every failure is the examiner's fault.
        record: keep the ranges that the pipeline names, for `record`. Without it they cost nothing.

    Raises:
        EngineError: the pipeline cannot be made.
    """
    runner = plan(examiner)
    _, environment = split_target(examiner.runner)
    # The worker adds arguments that start its own end; the child reads the last one, the library's folder.
    launcher = (examiner.for_ours if ours else examiner).launcher
    child = Environment("pipeline", (*environment.command, "-I", str(Path(stream_host.__file__).resolve())))
    with TimedWorker.start(
        Worker(child, launcher=launcher, timeout_s=TIME_LIMIT_S, most_bytes=MOST_ANSWERED, codes=CODES), runner, ours=ours
    ) as service:
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
    rows = len(logits)
    return bool((sizes >= 0).all() and (sizes <= rows).all() and sizes.sum() == rows)


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
        return _timeline(found["events"].tobytes().decode())
    except (KeyError, ValueError, OverflowError):
        raise EngineError("the pipeline's process sent an invalid answer") from None


def _timeline(text: str) -> Timeline:
    lines = text.split("\n")[:_MOST_EVENTS]
    events, zero = [], min(int(line.split(" ", 1)[0]) for line in lines)
    for line in lines:
        times, row, name = line.split("\t", 2)
        start, end = (int(word) for word in times.split(" "))
        kind: Kind = "kernel" if row == ENGINE_ROW else "range"
        events.append(Event(name[:_LONGEST_NAME], kind, (start - zero) / 1e3, (end - start) / 1e3, row[:_LONGEST_NAME]))
    return Timeline(tuple(events), (0.0, max(event.end_us for event in events)))
