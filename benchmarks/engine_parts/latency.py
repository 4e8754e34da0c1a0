"""The measuring part of `engines.py`: groups of engines interleaved, and two profiles that take turns."""

from __future__ import annotations

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.engine_parts.cases import GROUPS, SWITCHED, Group, images
from benchmarks.engine_parts.run import Run
from benchmarks.recording import Row, one_line
from course_lib.benchmark import compare
from course_lib.engines import Plan, Worker, split_target

_SWITCH = Path(__file__).with_name("profile_switch.py")


def measure_all(run: Run) -> None:
    """Whatever has its plans and no rows yet."""
    for group in GROUPS:
        names = [name for name in group.engines if run.plan_file(name).exists()]
        todo = [
            batch for batch in group.batches if not all(run.has(group=group.name, batch=batch, engine=name) for name in names)
        ]
        if run.in_time and todo and len(names) > 1 and names[0] == group.engines[0]:
            try:
                measure_group(run, group, names, todo)
            except Exception as error:
                run.add({"table": "latency", "group": group.name, "failed": one_line(error)})
    for name, shapes in SWITCHED.items():
        if run.plan_file(name).exists():
            run.attempt({"table": "switch", "engine": name}, lambda name=name, shapes=shapes: switch(run, name, shapes))  # type: ignore[misc]


def measure_group(run: Run, group: Group, names: list[str], batches: list[int]) -> None:
    """Rows of these engines at one batch size after another: the median latency, and the speedup over the first engine."""
    rng, environment = np.random.default_rng(), split_target(run.target)[1]
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        workers = {name: stack.enter_context(Worker(environment)) for name in names}
        list(pool.map(lambda name: workers[name].load(Plan.load(run.plan_file(name))), names))
        for batch in batches:
            if not run.in_time:
                return
            found = compare(workers, partial(images, batch, rng), baseline=names[0], time_limit_s=run.seconds)
            run.rows = [row for row in run.rows if (row.get("group"), row.get("batch")) != (group.name, batch)]
            for name in names:
                row: Row = {"table": "latency", "group": group.name, "engine": name, "batch": batch}
                row |= {"ms": found.measurements[name].median_ms, "rounds": len(found.measurements[name].latencies_ms)}
                run.add(row if name == names[0] else {**row, "over": names[0], "speedup": asdict(found.speedups[name])})


def switch(run: Run, name: str, shapes: Any) -> Row:
    """What `profile_switch` finds, in the interpreter that has TensorRT."""
    backend, environment = split_target(run.target)
    if not backend.startswith("tensorrt"):
        raise ValueError(f"{backend} has no execution contexts")
    command = [*environment.command, str(_SWITCH), str(run.plan_file(name)), json.dumps(shapes), str(run.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": ""})
    lines = [text for text in done.stdout.splitlines() if text.startswith("{")]
    if not lines:
        raise RuntimeError((done.stderr.strip() or "it said nothing").splitlines()[-1])
    return dict(json.loads(lines[-1]))
