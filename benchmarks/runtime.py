"""What the runtime's features are worth: CUDA graphs, several streams, refit, shared scratch memory.

    python benchmarks/runtime.py MODEL.onnx WEIGHTS.npz OUTPUT.json

MODEL is a classifier of 1x32x32 images with dynamic batch; WEIGHTS holds new values for some of its initializers, by name.

Runs in an interpreter with TensorRT and numpy alone. Each ratio comes from calls interleaved in one run, with a 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from course_lib.benchmark.statistics import speedup
from course_lib.engines.backends.tensorrt.builder import compile_plan
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine, shared_scratch

SHAPE = (1, 32, 32)
ROUNDS = 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "weights", "output"):
        parser.add_argument(name, type=Path, metavar=name.upper())
    options = parser.parse_args()
    import tensorrt as trt

    model, output = options.model, options.output
    weights = dict(np.load(options.weights))
    rows: list[dict[str, Any]] = []
    profile = {"image": {"min": [1, *SHAPE], "opt": [8, *SHAPE], "max": [32, *SHAPE]}}
    recipe = {
        "precision": "fp32", "workspace_mib": 1024, "optimization_level": 3, "flags": ["tf32", "refit"], "targets": [],
        "hardware_compatibility": "none", "profiles": [profile],
    }  # fmt: skip
    started = time.perf_counter()
    plan = compile_plan(trt, "tensorrt", model, recipe, {})
    build_s = time.perf_counter() - started
    engine = TensorRTEngine(trt, plan)
    for batch in (1, 8, 32):
        rows.append(_graph(engine, batch))
    for streams in (2, 4, 8):
        rows.append(_streams(engine, streams))
    rows.append(_refit(engine, weights, build_s))
    separate, shared = engine.loaded.scratch_bytes * 4, shared_scratch(engine).size
    rows.append({"feature": "scratch memory of 4 contexts", "bytes_separate": separate, "bytes_shared": shared})
    for row in rows:
        print(json.dumps(row), flush=True)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device, _, driver = subprocess.run(query, capture_output=True, text=True).stdout.strip().partition(", ")
    machine = {"date": date.today().isoformat(), "device": device, "driver": driver, "python": platform.python_version()}
    versions = {"tensorrt": trt.__version__}
    output.write_text(json.dumps({**machine, "versions": versions, "network": model.stem, "rows": rows}, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


def _images(batch: int) -> dict[str, np.ndarray]:
    return {"image": np.random.default_rng(0).random((batch, *SHAPE), dtype=np.float32)}


def _graph(engine: TensorRTEngine, batch: int) -> dict[str, Any]:
    """Device time and time at the caller (host clock around infer, copies counted) with and without a graph."""
    plain, graph, feeds = engine.execution(), engine.execution(graph=True), _images(batch)
    for _ in range(20):
        plain.infer(feeds), graph.infer(feeds)
    device = np.array([(plain.time_ms(feeds), graph.time_ms(feeds)) for _ in range(ROUNDS)]).T
    host = np.array([(_host_ms(plain, feeds), _host_ms(graph, feeds)) for _ in range(ROUNDS)]).T
    return {
        "feature": "CUDA graph",
        "batch": batch,
        "device_ms": {"plain": float(np.median(device[0])), "graph": float(np.median(device[1]))},
        "device_speedup": _ratio(*device),
        "host_ms": {"plain": float(np.median(host[0])), "graph": float(np.median(host[1]))},
        "host_speedup": _ratio(*host),
    }


def _host_ms(execution: Any, feeds: dict[str, np.ndarray]) -> float:
    started = time.perf_counter()
    execution.infer(feeds)
    return 1e3 * (time.perf_counter() - started)


def _streams(engine: TensorRTEngine, count: int) -> dict[str, Any]:
    """`count` requests of batch 8: one after the other on one stream, or started on all streams before the first is fetched."""
    executions, feeds = [engine.execution(graph=True) for _ in range(count)], _images(8)
    for execution in executions:
        for _ in range(5):
            execution.infer(feeds)

    def one_stream() -> float:
        started = time.perf_counter()
        for _ in executions:
            executions[0].infer(feeds)
        return time.perf_counter() - started

    def all_streams() -> float:
        started = time.perf_counter()
        for execution in executions:
            execution.start(feeds)
        for execution in executions:
            execution.finish()
        return time.perf_counter() - started

    times = np.array([(one_stream(), all_streams()) for _ in range(ROUNDS)]).T
    return {"feature": "streams", "streams": count, "batch": 8, "throughput_gain": _ratio(*times)}


def _refit(engine: TensorRTEngine, weights: dict[str, np.ndarray], build_s: float) -> dict[str, Any]:
    started = time.perf_counter()
    engine.refit(weights)
    return {"feature": "refit", "weights": list(weights), "refit_s": time.perf_counter() - started, "build_s": build_s}


def _ratio(slower: np.ndarray, faster: np.ndarray) -> dict[str, float]:
    interval = speedup(slower, faster)
    return {"median": interval.median, "low": interval.low, "high": interval.high}


if __name__ == "__main__":
    main()
