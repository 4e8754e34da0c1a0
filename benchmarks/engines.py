"""What builder settings, profiles, fusion and caches are worth: build times and latencies of one network's engines.

    python benchmarks/engines.py OUTPUT.json [--target tensorrt@trt8] [--folder PLANS] [--minutes 4] [--jobs 4] [--seconds 4]
    python benchmarks/engines.py OUTPUT.json --show [--figures FOLDER]

The rows of the four tables:

- *build*: seconds in the compiler, and until the plan is there; one reading each. The default is built alone, workspace sizes and
  optimization levels `--timed-jobs` at a time, and the other engines `--jobs` at a time, so that their build times say little.
- *cache*: the default's build with no cache, with the timing cache that this left, and from the plan cache.
- *latency*: device time of one run, the engines of a group interleaved; speedup over the group's first engine.
- *switch*: host time of one run where two profiles take turns; see `engine_parts/profile_switch.py`. Needs TensorRT.

Nothing new is begun after so many minutes; started again, the script goes on where it was, with the plans in its folder. Where TensorRT
is absent, the default target is ONNX Runtime: a trial of the script, whose engines know none of these settings.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.engine_parts.cases import DEFAULT, OTHERS, SPECS, TIMED, export
from benchmarks.engine_parts.latency import measure_all
from benchmarks.engine_parts.run import Run, line, tried
from benchmarks.recording import Row, about, rows_of
from course_lib.engines import Plan, Worker, build, default_runner, split_target
from course_lib.engines.backends.tensorrt.timing_cache import FOLDER_VARIABLE
from course_lib.engines.cache.plan_cache import Built, PlanCache
from course_lib.errors import CourseError
from course_lib.labs import Examiner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--target", default=default_runner())
    parser.add_argument("--folder", type=Path, help="of the plans; default: beside OUTPUT")
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument(
        "--timed-jobs", type=int, default=2, help="builds at a time where the time counts; 1 is right, and slower"
    )
    parser.add_argument("--jobs", type=int, default=4, help="builds at a time where it does not")
    parser.add_argument("--seconds", type=float, default=4, help="longest measuring of one group at one batch size")
    parser.add_argument("--size", choices=("wide", "small"), default="wide", help="of the digits classifier")
    parser.add_argument("--show", action="store_true", help="print what OUTPUT holds and measure nothing")
    parser.add_argument("--figures", type=Path, help="with --show: a folder for the figures")
    options = parser.parse_args()
    if options.show:
        show(options.output, options.figures)
        return
    run = opened(options)
    export(run, Examiner(builder=run.target).opset, options.size)
    build_default(run)
    caches(run)
    build_rest(run, TIMED, options.timed_jobs)
    build_rest(run, OTHERS, options.jobs)
    measure_all(run)


def opened(options: argparse.Namespace) -> Run:
    """A run that knows the rows of an earlier one, builds excepted whose plans are gone."""
    ends = time.monotonic() + 60 * options.minutes
    folder = (options.folder or options.output.with_suffix(".plans")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    backend, environment = split_target(options.target)
    with Worker(environment) as worker:
        versions = {row["name"]: row["version"] for row in worker.backends() if row["name"] == backend}
    network = f"digits classifier, {options.size}, FP32/TF32, profile batch 1-64 tuned for 8 unless named otherwise"
    known = {**about(versions), "target": options.target, "network": network}
    run = Run(options.target, folder, options.output, ends, options.seconds, known)
    run.rows = [row for row in rows_of(run.output) if row["table"] != "build" or run.plan_file(row["engine"]).exists()]
    return run


def build_default(run: Run) -> None:
    """From an empty timing cache, which it fills."""
    with timing_cache(run.folder / "timings"):
        run.attempt({"table": "build", "engine": DEFAULT}, lambda: built(run, DEFAULT, 1))


def build_rest(run: Run, names: Iterable[str], jobs: int) -> None:
    """What is missing, several at a time, each with no cache."""

    def build_one(name: str) -> Row | None:
        return tried({"table": "build", "engine": name}, lambda: built(run, name, jobs)) if run.in_time else None

    missing = [name for name in names if not run.has(table="build", engine=name)]
    with timing_cache(None), ThreadPoolExecutor(jobs) as pool:
        for done in as_completed([pool.submit(build_one, name) for name in missing]):
            if (row := done.result()) is not None:
                run.add(row)


def built(run: Run, name: str, jobs: int) -> Row:
    spec, started = SPECS[name], time.perf_counter()
    plan = build(run.model_file(spec.network), spec.recipe(), backend=run.target, time_limit_s=300)
    seconds = time.perf_counter() - started
    plan.save(run.plan_file(name))
    more = {"kernels": len(plan.layers.kernels), "plan_mb": round(len(plan.data) / 1e6, 2), "jobs": jobs}
    return {**build_times(plan, seconds), **more}


def build_times(plan: Plan, seconds: float) -> Row:
    """In the compiler, and in all: with the start of its process, the parser and the layer table."""
    return {"compiler_s": round(plan.build_seconds, 3), "build_s": round(seconds, 3)}


def caches(run: Run) -> None:
    """What the second build of the default takes."""
    model, recipe, plans = run.model_file("wide"), SPECS[DEFAULT].recipe(), PlanCache(run.folder / "plan-cache")

    def cold() -> Row:
        row = next(row for row in run.rows if row["table"] == "build" and row["engine"] == DEFAULT)
        return {key: row[key] for key in ("compiler_s", "build_s")}

    def again() -> tuple[Built, float]:
        started = time.perf_counter()
        found = plans.build(model, recipe, backend=run.target, time_limit_s=300)
        return found, time.perf_counter() - started

    def warm() -> Row:
        plans.prune(0)
        found, seconds = again()
        return build_times(found.plan, seconds)

    def cached() -> Row:
        again()
        hits = [again() for _ in range(5)]
        return {"outcome": hits[-1][0].outcome, "build_s": round(float(np.median([seconds for _, seconds in hits])), 4)}

    with timing_cache(run.folder / "timings"):
        for source, make in (("no cache", cold), ("timing cache", warm), ("plan cache", cached)):
            run.attempt({"table": "cache", "from": source}, make)


@contextmanager
def timing_cache(folder: Path | None) -> Iterator[None]:
    """Builds in this block use the timings in a folder, or none."""
    before = os.environ.pop(FOLDER_VARIABLE, None)
    if folder is not None:
        os.environ[FOLDER_VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(FOLDER_VARIABLE, None)
        if before is not None:
            os.environ[FOLDER_VARIABLE] = before


def show(file: Path, figures: Path | None) -> None:
    from course_lib.style import png
    from course_lib.teaching.engine_figures import draw_batches, draw_fusion, draw_settings

    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    print("\n".join(map(line, rows)))
    if figures:
        figures.mkdir(parents=True, exist_ok=True)
        for name, draw in {"batches": draw_batches, "settings": draw_settings, "fusion": draw_fusion}.items():
            try:
                (figures / f"{name}.png").write_bytes(png(draw(rows)))
            except CourseError as error:
                print(f"no {name}.png: {error}")


if __name__ == "__main__":
    main()
