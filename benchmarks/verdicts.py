"""How often is a verdict on speed wrong? Gradings of one engine under background load, its threshold 10 % above and below the truth.

    python benchmarks/verdicts.py [--gradings 200] [--output FILE.json]

The engine is lab 01's reference in the place of a submission. Its true speed, over PyTorch eager and over the reference, is measured
first, on the quiet machine. Each grading then starts the engines anew, as the grader does, and asks for a pace that the true
speed misses by 10 % or exceeds by 10 %, while another process keeps a core busy at random. Beside each, the same question is
answered the usual way: one run of each side, one after the other, and the ratio of the means.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.benchmark import compare
from course_lib.engines import Plan, available_backends
from course_lib.grading.judge.health import Device
from course_lib.grading.judge.judging import PATIENCE, provenance_of_machine
from course_lib.labs import Examiner
from course_lib.labs.framework import racing
from course_lib.labs.framework.criteria import Tier
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.racing import Pace, Tiers
from course_lib.labs.lab01_first_engine.checks import GIVEN, MIN_SQNR_DB
from course_lib.labs.lab01_first_engine.lab import lab as lab01
from course_lib.recipe import Recipe

MARGIN = 0.10
NAIVE_CALLS = 100
_BUSY = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    end = time.monotonic() + random.expovariate(2)
    while time.monotonic() < end: pass
    time.sleep(random.expovariate(2))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradings", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=12, help="to measure the true speed in")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Examiner().baseline(GIVEN) as eager:
        lab01.write_reference(Path(folder))
        plan = Examiner().runnable(Path(folder, "model.onnx"), Recipe.load(Path(folder, "recipe.toml")))
        truth = true_speed(eager, plan, options.sessions)
        print(f"true speed: {truth}", flush=True)
        with busy_core():
            rows = [grading(index, eager, plan, truth) for index in range(options.gradings)]
    found = {**summary(rows), "true_speed": truth}
    print(json.dumps(found, indent=1))
    if options.output:
        about = {
            "date": date.today().isoformat(),
            "device": provenance_of_machine(),
            "driver": "none: no GPU",
            "command": "python benchmarks/verdicts.py",
        }
        versions = {one.name: one.version for one in available_backends() if one.version}
        options.output.write_text(json.dumps({**about, "versions": versions, **found, "rows": rows}, indent=1) + "\n")


@contextmanager
def busy_core() -> Iterator[None]:
    """A process of our own that computes about half of the time, in bursts of half a second on average."""
    process = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def true_speed(eager: TimedWorker, plan: Plan, sessions: int) -> dict[str, float]:
    """The engine's speed over eager and over the same engine, the median of sessions that each start the engines anew."""
    found: dict[str, list[float]] = {"eager": [], "reference": []}
    for _ in range(sessions):
        with Examiner().engine(plan) as yours, Examiner().reference(plan) as reference:
            subjects = {"eager": eager, "reference": reference, "yours": yours}
            measured = compare(subjects, images, baseline="eager", time_limit_s=8, half_width=0.0)
        for name in found:
            found[name].append(measured.ratio(name, "yours").median)
    return {name: statistics.median(ratios) for name, ratios in found.items()}


def grading(index: int, eager: TimedWorker, plan: Plan, truth: dict[str, float]) -> dict[str, Any]:
    """One verdict: on the speed over eager and over the reference in turn, on an engine too slow and one fast enough in turn."""
    about, fast_enough = ("eager", "reference")[index % 2], index // 2 % 2 == 0
    asked = truth[about] / (1 + MARGIN if fast_enough else 1 - MARGIN)
    pace = Pace(asked, 0.01) if about == "reference" else Pace(0.01, asked)
    tiers = Tiers(full=pace, partial=Pace(0.01, 0.01))
    began = time.monotonic()
    with ExitStack() as stack:
        yours, reference = stack.enter_context(Examiner().engine(plan)), stack.enter_context(Examiner().reference(plan))
        device = Device.here()
        examiner = Examiner(measured=device.measured)
        for patience in (1, PATIENCE):
            asking = replace(examiner, measure_s=patience * examiner.measure_s)
            subjects = {"eager": eager, "reference": reference, "yours": yours}
            raced = racing.race(subjects, images, tiers, asking, floor_db=MIN_SQNR_DB)
            tier = tiers.tier(raced.latencies())[0]
            if tier != Tier.INCONCLUSIVE:
                break
        naive = mean_ms({"eager": eager, "reference": reference}[about]) / mean_ms(yours)
    row = {
        "about": about, "fast_enough": fast_enough, "asked": asked, "tier": tier, "speed": raced.ratio(about, "yours").median,
        "rounds": len(raced.latencies()["yours"]), "measured_s": round(raced.seconds, 2), "naive_speed": naive,
        "naive_passes": bool(naive >= asked), "disturbed": sum(bool(record.disturbed) for record in device.records),
        "measurements": len(device.records), "load": round(os.getloadavg()[0], 2), "seconds": round(time.monotonic() - began, 2),
    }  # fmt: skip
    print(f"{index:3} {json.dumps(row)}", flush=True)
    return row


def mean_ms(engine: TimedWorker) -> float:
    return statistics.fmean(engine.time_ms(images()) for _ in range(NAIVE_CALLS))


def images() -> dict[str, np.ndarray]:
    """One request of lab 01: a digit."""
    return {"image": np.random.default_rng(random.getrandbits(32)).random((1, 1, 32, 32), dtype=np.float32)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of what was right, wrong and undecided, for the judge and for the means of one run."""
    tiers = Counter(row["tier"] for row in rows)
    return {
        "gradings": len(rows),
        "margin": MARGIN,
        "wrong_passes": sum(row["tier"] == Tier.FULL and not row["fast_enough"] for row in rows),
        "wrong_fails": sum(row["tier"] in (Tier.PARTIAL, Tier.NONE) and row["fast_enough"] for row in rows),
        "inconclusive": tiers[Tier.INCONCLUSIVE],
        "naive_wrong_passes": sum(row["naive_passes"] and not row["fast_enough"] for row in rows),
        "naive_wrong_fails": sum(not row["naive_passes"] and row["fast_enough"] for row in rows),
        "median_seconds": statistics.median(row["seconds"] for row in rows),
        "repeated_for_disturbance": sum(row["measurements"] > 1 for row in rows),
    }


if __name__ == "__main__":
    main()
