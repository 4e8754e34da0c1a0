"""Pipelines in their own processes: their answers, and what is recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np

from course_lib.engines import Plan, Worker, build
from course_lib.labs.framework.examination import MOST_ANSWERED, Examiner, TimedWorker
from course_lib.labs.framework.examination import ours as our_work
from course_lib.labs.lab10_profiling.network import RECORDED, fresh_stream, model
from course_lib.labs.lab10_profiling.sandboxed.pipeline import CODES
from course_lib.labs.lab10_profiling.sandboxed.pipeline import __name__ as pipeline_module
from course_lib.profiling import Event, Timeline
from course_lib.recipe import Profile, Recipe

_BATCHES = Profile(image={"min": (1, 1, 32, 32), "opt": (32, 1, 32, 32), "max": (32, 1, 32, 32)})
TIME_LIMIT_S = 20.0  # for one stream; the given pipeline takes half a second


class PipelineWorker(Worker):
    """A process that runs a pipeline in place of an engine."""

    program = pipeline_module


@cache
def plan() -> Plan:
    """The lab's engine. It runs on the processor on every machine, because a learner's shares are compared with the grader's."""
    with our_work():
        return build(model(), Recipe(profiles=(_BATCHES,)), backend="onnxruntime")


@contextmanager
def started(source: str, examiner: Examiner, *, ours: bool = False, record: bool = False) -> Iterator[TimedWorker]:
    """A process with the pipeline of this text, ready for streams. Leaving the block ends it and its child processes.

    Args:
        ours: the text is the course's own, so every failure is the examiner's fault.
        record: keep the ranges that the pipeline names, for `record`. Without it they cost nothing.
    """
    launcher = (examiner.for_ours if ours else examiner).launcher
    worker = PipelineWorker(launcher=launcher, timeout_s=TIME_LIMIT_S, most_bytes=MOST_ANSWERED, codes=CODES)
    with TimedWorker.start(worker, plan(), ours=ours) as service:
        service.infer({"source": np.frombuffer(source.encode(), np.uint8), "record": np.array(record)})
        yield service


def record(source: str, examiner: Examiner | None = None, *, ours: bool = False) -> Timeline:
    """Ranges of a pipeline, from its start through a stream of fresh scans in `RECORDED` requests, and the engine's work.

    The engine's work has its own row and counts as the device's.
    """
    examiner = examiner or Examiner()
    with started(source, examiner, ours=ours, record=True) as service:
        service.infer(fresh_stream(RECORDED, examiner.rng()))
        found = json.loads(service.infer({"timeline": np.array(True)})["timeline"].tobytes())
    return Timeline(tuple(Event(**event) for event in found["events"]), tuple(found["bounds"]))
