"""Which kernels a call of the headline table consists of, and how long each takes, by Nsight Compute.

    python benchmarks/kernel_times.py --folder /tmp/plans --target tensorrt@trt8 --plugin PLUGIN.so --output FILE.json \
        --networks bert --batch 64 --candidates "TensorRT fp16" "TensorRT fp16, attention plugin" "compile fp16"

Needs what `networks.py build` has left in the folder, and ncu. Each kernel of one call is run alone, at the clock that the GPU has, and
caches stay as they are: the sum is close to the call's device time, but is not it. Plain candidates only: a CUDA graph is one launch.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

LAUNCHES = 2000  # more than any call of the table has


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--target", default="tensorrt@trt8")
    parser.add_argument("--plugin", type=Path)
    parser.add_argument("--networks", nargs="+", default=["bert"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--candidates", nargs="+", required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    record(options)


def record(options: argparse.Namespace) -> None:
    """A row for each network and candidate, the file written after each."""
    from benchmarks.headline.cases import NETWORKS, candidates
    from benchmarks.machine import machine
    from benchmarks.recording import one_line, save

    known, rows = machine(options.target), []
    for network in (one for one in NETWORKS if one.name in options.networks):
        for candidate in (one for one in candidates(network, options.target, gpu=True) if one.name in options.candidates):
            row = {"network": network.title, "batch": options.batch, "candidate": candidate.name}
            try:
                kernels = profiled(options, network, candidate)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                rows.append({**row, "failed": one_line(error)})
            else:
                rows.append({**row, "kernels": kernels, "us": round(sum(kernel["us"] for kernel in kernels), 1)})
            print(json.dumps(rows[-1])[:1500], flush=True)
            save(options.output, known, rows)


def profiled(options: argparse.Namespace, network: Any, candidate: Any) -> list[dict[str, Any]]:
    """Kernels of one call by name, the longest first: launches, and microseconds of all of them."""
    from benchmarks.headline.material import inputs_file
    from course_lib.engines import split_target
    from course_lib.engines.worker.environment import HERE
    from course_lib.profiling.readers.ncu import read_ncu

    engine = candidate.group == "tensorrt"
    request = {
        "open": {
            "inputs": str(inputs_file(network, options.folder.resolve())),
            "tf32": candidate.group == "torch tf32",
            "plugin": str(options.plugin.resolve()) if engine and options.plugin else "",
        },
        "load": {"name": candidate.name, **_source(options.folder.resolve(), network, candidate)},
        "batch": options.batch,
    }
    environment = split_target(options.target)[1] if engine else HERE
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "kernels.csv"
        ncu = ["ncu", "--target-processes=all", "--clock-control=none", "--cache-control=none", "--profile-from-start=off"]
        ncu += ["--metrics=gpu__time_duration.sum", "--csv", "--page=raw", f"--launch-count={LAUNCHES}", f"--log-file={table}"]
        command = [*ncu, *environment.command, str(Path(__file__).resolve()), "--call", json.dumps(request)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150)
        if done.returncode or not table.exists():
            raise ValueError(f"ncu ended with {done.returncode}: {(done.stdout + done.stderr)[-300:]}")
        launches = read_ncu(table)
    names = Counter(launch.name for launch in launches)
    times = {name: sum(launch.duration_us for launch in launches if launch.name == name) for name in names}
    ordered = sorted(times, key=lambda name: -times[name])
    return [{"name": name[:120], "launches": names[name], "us": round(times[name], 2)} for name in ordered]


def _source(folder: Path, network: Any, candidate: Any) -> dict[str, Any]:
    """What `child.Held.load` gets: a plan, or a network of PyTorch's."""
    from course_lib.engines import ModelSource

    if candidate.plan:
        return {"plan": str(folder / f"{network.name}.{candidate.plan}.plan"), "graph": False}
    half = candidate.dtype == "fp16"
    arguments = (half and not network.attention, network.factory, *network.arguments)
    source = ModelSource("benchmarks.headline.torch_networks:network", arguments, "fp16" if half else "fp32", candidate.variant)
    return {"source": asdict(source)}


def call(request: dict[str, Any]) -> None:
    """In the candidate's interpreter: two calls to warm up, then one between the marks that ncu waits for."""
    from benchmarks.headline.child import Held

    held = Held(**request["open"])
    held.load(**request["load"])
    name, batch = request["load"]["name"], request["batch"]
    cuda = ctypes.CDLL("libcuda.so.1")
    for index in range(2):
        held.infer(name, batch, index)
    cuda.cuProfilerStart()
    held.infer(name, batch, 2)
    cuda.cuProfilerStop()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--call"]:
        call(json.loads(sys.argv[2]))
    else:
        main()
