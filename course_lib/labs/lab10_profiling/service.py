"""Pipelines in their own processes: their answers, and what is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.engines import Plan, Worker, split_target
from course_lib.errors import EngineError
from course_lib.labs.framework.examination import MOST_ANSWERED, Examiner, TimedWorker
from course_lib.labs.framework.examination import ours as our_work
from course_lib.labs.lab10_profiling.network import RECORDED, Stream, fresh_stream, serialized_model
from course_lib.labs.lab10_profiling.sandboxed.pipeline import CODES, ENGINE_ROW, START
from course_lib.labs.lab10_profiling.sandboxed.pipeline import __name__ as pipeline_module
from course_lib.profiling import Event, Timeline
from course_lib.recipe import Profile, Recipe

_BATCHES = Profile(image={"min": (1, 1, 32, 32), "opt": (32, 1, 32, 32), "max": (32, 1, 32, 32)})
TIME_LIMIT_S = 20.0  # for one stream; the given pipeline takes half a second


class PipelineWorker(Worker):
    """A process that runs a pipeline in place of an engine."""

    program = pipeline_module


@cache
def plan(runner: str) -> Plan:
    """The lab's engine for a runner.

    Raises:
        ExaminerFault: it cannot be built.
    """
    with our_work(), TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        model.write_bytes(serialized_model())
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
    found = list(service.infer(stream).values())
    if any(logits.ndim != 2 or logits.shape[1] != 10 for logits in found):
        raise EngineError("the pipeline's process sent an invalid answer")
    return found


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
    with started(source, examiner, ours=ours, record=True) as service:
        answers(service, fresh_stream(RECORDED, examiner.rng()))
        rows = json.loads(service.infer({"events": np.array(True)})["events"].tobytes())
    zero = min(start for _, _, start, _ in rows)
    events = tuple(
        Event(name, "kernel" if row == ENGINE_ROW else "range", (start - zero) / 1e3, (end - start) / 1e3, row)
        for name, row, start, end in rows
    )
    return Timeline(events, (0.0, max(event.end_us for event in events)))


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
