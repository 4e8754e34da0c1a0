"""Records a slow pipeline and its repair with torch.profiler, and a few kernels with Nsight Compute, for lecture 12 and its tests.

    PYTHONPATH=. python benchmarks/record_profiles.py course_lib/records/profiles_DEVICE

Needs an NVIDIA GPU, torch with CUDA, and ncu for the last part. Writes slow.json.gz, repaired.json.gz, kernels.csv, record.json.
Both pipelines compute the same; the slow one has four faults planted in it: host work between launches, pageable blocking
copies, a value read back every step, and many tiny kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from course_lib.errors import ProfileError
from course_lib.profiling.faults import find_faults
from course_lib.profiling.readers.ncu import read_ncu
from course_lib.profiling.readers.nsight import FLOP_METRICS, METRICS, ncu_profile
from course_lib.profiling.readers.torch_trace import read_torch_trace

STEPS, BATCH, SIZE = 8, 32, 128
# Operations on tensor cores, one metric a type of input. Not every GPU has every one, and ncu rejects those it does not know:
# `ncu --query-metrics` lists them.
TENSOR_METRICS = tuple(
    f"sm__ops_path_tensor_src_{types}.sum"
    for types in ("bf16_dst_fp32", "fp16", "fp16_dst_fp16", "fp16_dst_fp32", "fp8", "int8", "tf32_dst_fp32")
)
SCALE, SHIFT = 1 / (255 * 0.22), -0.45 / 0.22  # bytes to mean 0, deviation 1
SMOOTHINGS = 60  # three small kernels each, so many that the convolutions do not hide their launches
RANGE = "measured"
LARGEST_BYTES = 150_000

Pipeline = Callable[[], Sequence[float]]


def network(device: str = "cuda") -> nn.Module:
    """Two convolutions and a classifier, random weights."""
    torch.manual_seed(0)
    stages = [(3, 64, 2), (64, 128, 1)]  # channels in and out, stride
    layers = [layer for into, out, stride in stages for layer in (nn.Conv2d(into, out, 3, stride, 1), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).to(device).eval()


def smooth(scores: torch.Tensor) -> torch.Tensor:
    """Many tiny operations on a tensor of 320 numbers."""
    for _ in range(SMOOTHINGS):
        scores = (scores * 0.98).clamp(-4, 4) + 0.01
    return scores


def slow_pipeline(images: Sequence[np.ndarray], net: nn.Module, device: str = "cuda") -> list[float]:
    """As it is often written first: everything waits for everything."""
    best = []
    for batch in images:
        with record_function("step"):
            with record_function("preprocess"):
                pixels = np.multiply(batch, np.float32(SCALE), dtype=np.float32)
                pixels += np.float32(SHIFT)
            with record_function("infer"):
                scores = smooth(net(torch.from_numpy(pixels).to(device)))
            best.append(scores.max().item())
    return best


def repaired_pipeline(images: Sequence[np.ndarray], net: nn.Module) -> Pipeline:
    """Bytes in pinned memory, copied without blocking, normalized on the device, one CUDA graph a step, one wait at the end."""
    pinned = [torch.from_numpy(batch).pin_memory() for batch in images]
    results = torch.empty(len(images)).pin_memory()
    pixels = torch.empty_like(pinned[0], device="cuda")

    def step() -> torch.Tensor:
        return smooth(net(pixels.float() * SCALE + SHIFT)).max()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # a graph is captured after everything has been allocated and chosen once
        for _ in range(3):
            step()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        best = step()

    def run() -> list[float]:
        for index, batch in enumerate(pinned):
            with record_function("step"):
                pixels.copy_(batch, non_blocking=True)
                graph.replay()
                results[index].copy_(best, non_blocking=True)
        torch.cuda.synchronize()
        return results.tolist()

    return run


def record_trace(pipeline: Pipeline, target: Path) -> None:
    """Profile one pass after two that warm the caches and the profiler up."""
    pipeline()
    for measured in (False, True):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            pipeline()
            torch.cuda.synchronize()
        if measured:
            whole = target.with_suffix(".whole")
            profiler.export_chrome_trace(str(whole))
            document = json.loads(whole.read_bytes())
            whole.unlink()
            target.write_bytes(gzip.compress(json.dumps(trimmed(document), separators=(",", ":")).encode(), 9, mtime=0))


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    """The events that a timeline shows, with the arguments that it needs, from time zero."""
    categories = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "user_annotation", "cpu_op"}
    events = [event for event in document["traceEvents"] if event.get("ph") == "X" and event.get("cat") in categories]
    zero = min(event["ts"] for event in events)
    kept = []
    for event in events:
        arguments = {
            key: event["args"][key] for key in ("device", "stream", "correlation", "bytes") if key in event.get("args", {})
        }
        row = {key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "dur")}
        kept.append({**row, "ts": round(event["ts"] - zero, 3), "args": arguments})
    return {"schemaVersion": document.get("schemaVersion"), "displayTimeUnit": "ms", "traceEvents": kept}


def milliseconds_per_step(pipeline: Pipeline, passes: int = 10) -> float:
    """Median over passes, without a profiler."""
    times = []
    for _ in range(passes):
        torch.cuda.synchronize()
        start = time.perf_counter()
        pipeline()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times)) / STEPS


def run_kernels() -> None:
    """What ncu looks at: a large cast, a large addition, a large matrix product and a small addition, one launch each."""
    half = torch.randn(1 << 28, device="cuda", dtype=torch.bfloat16)
    single = torch.empty(1 << 28, device="cuda")
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    small = torch.randn(4096, device="cuda")
    for marked in (False, True):
        torch.cuda.synchronize()
        if marked:
            torch.cuda.nvtx.range_push(RANGE)
        single.copy_(half)
        torch.add(single, single, out=single)
        left @ right
        small + small
        torch.cuda.synchronize()
        if marked:
            torch.cuda.nvtx.range_pop()


def record_kernels(target: Path) -> str:
    """Writes ncu's table; returns its version, or why there is none."""
    ncu = shutil.which("ncu") or next((str(path) for path in sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))), None)
    if ncu is None:
        return "not installed"
    known = set(
        re.findall(r"^(\w+__\w+)", subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True).stdout, re.M)
    )
    tensor = [metric for metric in TENSOR_METRICS if metric.removesuffix(".sum") in known]
    tensor = tensor or [f"{name}.sum" for name in sorted(known) if name.startswith("sm__ops_path_tensor_") and "bf16" in name]
    print(f"ncu knows {len(known)} metrics; of tensor cores: {', '.join(tensor) or 'none of those asked for'}", flush=True)
    child = [sys.executable, __file__, "--kernels", str(target.parent)]
    counters = [*METRICS, *FLOP_METRICS]
    # should ncu reject a metric or the range, less is asked for; eight launches of the child come before the measured ones
    for metrics, within, skip in (([*counters, *tensor], RANGE, 0), (counters, RANGE, 0), (counters, "", 8)):
        # the clock stays as it is: this machine may be shared
        line = ncu_profile(child, csv=target, metrics=metrics, within=within, skip=skip, count=8, base_clock=False)
        try:
            done = subprocess.run([ncu, *line[1:]], capture_output=True, text=True, timeout=150)
            print(f"ncu exited with {done.returncode}: {(done.stdout + done.stderr)[-500:]}", flush=True)
            if kernels := read_ncu(target):
                for kernel in kernels:
                    print(kernel, kernel.intensity, kernel.bound, flush=True)
                break
        except (ProfileError, subprocess.TimeoutExpired) as error:
            print(f"ncu with {len(metrics)} metrics: {error}", flush=True)
    if not target.exists():
        return "without result"
    text = target.read_text(errors="replace")
    target.write_text(re.sub(r"\(/[^)\n]*\)", "(python)", re.sub(r'"[^"\n]*/(python[\w.]*)"', r'"\1"', text)))
    version = subprocess.run([ncu, "--version"], capture_output=True, text=True).stdout
    return (re.search(r"Version ([\d.]+)", version) or ["", "unknown"])[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernels", action="store_true", help="only launch the kernels, for ncu")
    options = parser.parse_args()
    if options.kernels:
        run_kernels()
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (BATCH, 3, SIZE, SIZE), dtype=np.uint8) for _ in range(STEPS)]
    net = network()
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    device, _, driver = subprocess.run(query, capture_output=True, text=True).stdout.strip().partition(", ")
    record: dict[str, Any] = {"date": date.today().isoformat(), "device": device, "driver": driver}
    record |= {"python": platform.python_version(), "torch": torch.__version__, "cuda": torch.version.cuda}
    record |= {"steps": STEPS, "batch": BATCH, "image": [3, SIZE, SIZE]}
    with torch.inference_mode():
        repaired = repaired_pipeline(images, net)
        pipelines: dict[str, Pipeline] = {"slow": lambda: slow_pipeline(images, net), "repaired": repaired}
        results = {name: np.asarray(pipeline()) for name, pipeline in pipelines.items()}
        record["largest_difference"] = float(np.abs(results["slow"] - results["repaired"]).max())
        for name, pipeline in pipelines.items():
            record[f"{name}_ms_per_step"] = round(milliseconds_per_step(pipeline), 4)
            target = options.folder / f"{name}.json.gz"
            record_trace(pipeline, target)
            timeline = read_torch_trace(target)
            print(f"\n{name}: {record[f'{name}_ms_per_step']} ms a step, {target.stat().st_size} bytes\n{timeline.headline()}")
            for fault in find_faults(timeline):
                print(f"  {fault}", flush=True)
    print()
    record["ncu"] = record_kernels(options.folder / "kernels.csv")
    record["bytes"] = {
        path.name: path.stat().st_size for path in sorted(options.folder.glob("*.*")) if path.name != "record.json"
    }
    (options.folder / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))
    if large := [name for name, size in record["bytes"].items() if size > LARGEST_BYTES]:
        print(f"larger than {LARGEST_BYTES} bytes: {', '.join(large)}")


if __name__ == "__main__":
    main()
