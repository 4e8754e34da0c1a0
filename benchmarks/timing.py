"""Timing fidelity: the course's clocks beside `triton.testing.do_bench` and beside CUDA graphs replayed under the host's clock.

    python benchmarks/timing.py OUTPUT.json [--seconds 240]

Needs torch with a GPU and Triton. Each row is one kernel, timed in two ways by two instruments each, so that the two of a pair time
the same thing:

- *One launch*: `measure` with a `DeviceClock`, and `do_bench`. Both put one call between two events, after overwriting 256 MiB, so
  for both the L2 cache holds none of the kernel's data and is full of lines that have to be written back.
- *Many launches*: the same CUDA graph of as many launches as take 2 ms, by `measure` with a `DeviceClock`, and by the host's clock
  around replays that take 20 ms, one right after the other. What the cache holds at each launch is what the one before has left, for
  both; the wipe before the first launch and the events are less than 1 % of 2 ms.

The network is an engine of the course's with its own clock, `Engine.time_ms`, which wipes nothing and counts its launch, as a caller that
waits for the answer does. Its batch is therefore chosen so that a call takes 3 ms.

All four take turns in shuffled order; a ratio is the median over the rounds with a 95 % interval. An interrupted run goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.clock_checks import hidden_stream, verdicts
from benchmarks.recording import Row, about, one_line, rows_of, save
from course_lib.benchmark import DeviceClock, measure, speedup
from course_lib.benchmark.statistics import Clock

ROUNDS = 20
IN_GRAPH_US, REPLAYED_US, ENGINE_MS = 2000, 20_000, 3.0

Timer = Callable[[], float]  # one reading in microseconds
Call = Callable[[], Any]


@dataclass(frozen=True)
class Subject:
    """One kernel as the four instruments see it; `launches` of it are in the graph."""

    one: Mapping[str, Timer]
    many: Mapping[str, Timer]
    launches: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=240, help="no row is begun after that")
    options = parser.parse_args()
    import torch
    import triton

    known = about({"torch": torch.__version__, "cuda": str(torch.version.cuda), "triton": triton.__version__})
    rows, ends = rows_of(options.output), time.monotonic() + options.seconds
    with torch.inference_mode():
        clock = DeviceClock()
        for name, make in SUBJECTS.items():
            if time.monotonic() < ends and name not in [row["kernel"] for row in rows]:
                rows.append(_row(name, make, clock))
                print(json.dumps(rows[-1]), flush=True)
                save(options.output, known, rows)
        more = {"verdicts": verdicts(clock), "hidden_stream": hidden_stream(clock)}
        print(json.dumps(more), flush=True)
        save(options.output, known, rows, **more)


def _row(name: str, make: Callable[[Clock], Subject], clock: Clock) -> Row:
    try:
        return {"kernel": name, **agreement(make(clock))}
    except Exception as error:  # one row's failure is its own
        return {"kernel": name, "failed": one_line(error)}


def agreement(subject: Subject, rounds: int = ROUNDS) -> Row:
    """Medians in microseconds, and the ratios ours / theirs of both pairs, from interleaved rounds."""
    timers = {**subject.one, **subject.many}
    read: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name in random.sample(list(timers), len(timers)):
            read[name].append(timers[name]())
    us = {name: np.array(values) for name, values in read.items()}
    ratios = [_ratio(us[ours], us[theirs]) for ours, theirs in (tuple(subject.one), tuple(subject.many))]
    medians = {name: round(float(np.median(values)), 3) for name, values in us.items()}
    return {**medians, "launches": subject.launches, "over_do_bench": ratios[0], "over_graph": ratios[1]}


def _ratio(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    found = speedup(ours, theirs, seed=0)
    return {name: round(getattr(found, name), 4) for name in ("median", "low", "high")}


# ---- the four instruments


def subject(call: Call, clock: Clock) -> Subject:
    """A function that enqueues one kernel, or a few."""
    launches = max(1, round(IN_GRAPH_US / (1e3 * measure(call, seconds=0, clock=clock).median_ms)))
    graph = captured(call, launches)
    return Subject(
        {"ours_us": by_clock(call, clock), "do_bench_us": by_do_bench(call)},
        {"ours_in_graph_us": by_clock(graph.replay, clock, launches), "graph_us": by_host(graph.replay, launches)},
        launches,
    )


def by_clock(call: Call, clock: Clock, launches: int = 1) -> Timer:
    return lambda: 1e3 * measure(call, seconds=0.01, warmup=2, clock=clock).median_ms / launches


def by_do_bench(call: Call) -> Timer:
    from triton.testing import do_bench

    return lambda: 1e3 * float(do_bench(call, warmup=5, rep=20, return_mode="median"))


def by_host(call: Call, launches: int = 1) -> Timer:
    """Replays one after the other, between two readings of the host's clock and a synchronization of the whole device."""
    import torch

    def clocked_us(replays: int) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(replays):
            call()
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - started) / replays

    replays = max(3, round(REPLAYED_US / clocked_us(3)))
    return lambda: clocked_us(replays) / launches


def captured(call: Call, launches: int = 1) -> Any:
    import torch

    with torch.cuda.stream(torch.cuda.Stream()):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            call()
    return graph


# ---- kernels


def copy(mib: int) -> Callable[[Clock], Subject]:
    def make(clock: Clock) -> Subject:
        import torch

        x = torch.randn(mib << 18, device="cuda")
        y = torch.empty_like(x)
        return subject(lambda: torch.neg(x, out=y), clock)  # each number read and written once

    return make


def product(size: int) -> Callable[[Clock], Subject]:
    def make(clock: Clock) -> Subject:
        import torch

        a, b = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
        c = torch.empty_like(a)
        return subject(lambda: torch.matmul(a, b, out=c), clock)

    return make


def chain(mib: int) -> Callable[[Clock], Subject]:
    """Four kernels, each on the output of the one before."""

    def make(clock: Clock) -> Subject:
        import torch

        x = torch.randn(mib << 18, device="cuda")
        y = torch.empty_like(x)

        def call() -> None:
            torch.mul(x, 1.5, out=y)
            y.add_(0.25).relu_().tanh_()

        return subject(call, clock)

    return make


def nothing(clock: Clock) -> Subject:
    """An empty kernel: what is in every measurement of one launch, and in every launch of a graph."""
    import torch

    return subject(lambda: torch.cuda._sleep(0), clock)


def network(clock: Clock) -> Subject:
    """The wide classifier as an engine, and the same module captured by torch."""
    import torch

    from course_lib.engines import ModelSource, load
    from course_lib.models import classifier

    engine = load(ModelSource("course_lib.models:classifier", ("wide",), "fp32", "cuda_graph"))
    for batch in (64 << i for i in itertools.count()):
        feeds = {"image": np.random.default_rng(0).random((batch, 1, 32, 32), np.float32)}
        if min(engine.time_ms(feeds) for _ in range(5)) >= ENGINE_MS or batch >= 16_384:
            break
    model, images = classifier("wide").eval().cuda(), torch.from_numpy(feeds["image"]).cuda()
    replay = captured(lambda: model(images)).replay

    def ours() -> float:
        return 1e3 * float(np.median([engine.time_ms(feeds) for _ in range(10)]))

    one = {"ours_us": ours, "do_bench_us": by_do_bench(replay)}
    return Subject(one, {"ours_in_graph_us": ours, "graph_us": by_host(replay)}, 1)


SUBJECTS: dict[str, Callable[[Clock], Subject]] = {
    "an empty kernel": nothing,
    **{f"copy of {mib} MiB": copy(mib) for mib in (64, 256, 1024)},
    **{f"product of two {size}x{size} bf16 matrices": product(size) for size in (2048, 4096)},
    **{f"four elementwise kernels on {mib} MiB": chain(mib) for mib in (64, 256)},
    "the wide classifier, an engine of torch's with a CUDA graph": network,
}


if __name__ == "__main__":
    main()
