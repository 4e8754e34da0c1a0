"""Two checks of the GPU's clock for benchmarks/timing.py: the same verdict again and again, and work that events do not see."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.recording import Row
from course_lib.benchmark import compare
from course_lib.benchmark.statistics import Clock
from course_lib.errors import EngineError
from course_lib.labs.framework.racing import Pace, Tiers
from course_lib.teaching.benchmarking.noise import Timed

# All points from 95 % of the reference's speed, as a lab asks it of a submission: 10 % more work is clearly below, equal work above.
TIERS = Tiers(full=Pace(of_reference=0.95, over_eager=1.05), partial=Pace(of_reference=0.8, over_eager=1.05))
REPEATS = 10
PAIRS = {"equal": 1.0, "10 % slower": 1.1}


def verdicts(clock: Clock, numbers: int = 64 << 20, repeats: int = REPEATS, device: str = "cuda") -> list[Row]:
    """Equal work, and work that is 10 % more, compared with a reference again and again: tiers and last ratio by pair."""
    return [{"pair": pair, **_verdicts(clock, numbers, share, repeats, device)} for pair, share in PAIRS.items()]


def _verdicts(clock: Clock, numbers: int, share: float, repeats: int, device: str) -> Row:
    subjects = {"eager": 2.0, "reference": 1.0, "yours": share}
    timed = {name: Timed(_negation(round(numbers * factor), device), clock) for name, factor in subjects.items()}
    tiers: Counter[str] = Counter()
    for _ in range(repeats):
        found = compare(timed, dict, baseline="eager", settled=TIERS.decided, time_limit_s=10)
        tiers[TIERS.tier(found.latencies())[0]] += 1
    last = found.ratio("reference", "yours", seed=0)
    return {"tiers": dict(tiers), "of_reference": {"median": last.median, "low": last.low, "high": last.high}}


def _negation(numbers: int, device: str) -> Callable[[Any], Any]:
    import torch

    x = torch.randn(numbers, device=device)
    y = torch.empty_like(x)
    return lambda _: torch.neg(x, out=y)


def hidden_stream(clock: Clock, cycles: int = 2_000_000) -> Row:
    """About a millisecond of work: what events alone say, what the host's clock says, and what our clock says of it."""
    import torch

    hidden = torch.cuda.Stream()

    def call() -> None:
        with torch.cuda.stream(hidden):
            torch.cuda._sleep(cycles)

    call()  # loads the kernel
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    started = time.perf_counter()
    begin.record()
    call()
    end.record()
    end.synchronize()
    torch.cuda.synchronize()
    host_ms = 1e3 * (time.perf_counter() - started)
    try:
        said = f"not noticed: {clock(call):.3f} ms"
    except EngineError as error:
        said = str(error)
    return {"events_ms": round(begin.elapsed_time(end), 4), "host_ms": round(host_ms, 4), "said": said}
