"""Requests spread over several GPUs: a process with an engine on each, whose thread sends the next request when the last is answered.

    python benchmarks/spread.py OUTPUT.json --folder DIR [--gpus 1 2] [--target tensorrt@trt8] [--networks resnet50 unet]
    python benchmarks/spread.py OUTPUT.json --folder DIR --smoke

Requests and answers go through pipes, as between a server and its engines on one host, so a rate contains copies and the host's part.
The numbers of GPUs take turns in every round; a gain compares them round by round. `--smoke` does all of it on a CPU, with small
networks and two processes that share its cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx

from benchmarks.headline.cases import NETWORKS, SMALL, Network
from benchmarks.headline.material import onnx_file, prepare
from benchmarks.machine import machine
from benchmarks.recording import Row, one_line, rows_of, save
from course_lib.benchmark import speedup
from course_lib.benchmark.serving import rates
from course_lib.engines import Plan, Worker, build, default_runner, split_target
from course_lib.grading.batch import farm
from course_lib.recipe import Profile, Recipe

INPUTS = 64  # of a network; more than the largest batch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--folder", type=Path, required=True, help="for ONNX files and inputs")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--target", default=default_runner())
    parser.add_argument("--networks", nargs="+", default=["resnet50", "unet"], choices=[one.name for one in NETWORKS])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=1.0, help="of each number of GPUs in each round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    devices = [str(number) for number in range(max(options.gpus))] if options.smoke else farm.gpus()
    if max(options.gpus) > len(devices):
        parser.error(f"--gpus {max(options.gpus)}: here are {len(devices)}")
    target, known, rows = options.target, machine(options.target), rows_of(options.output)
    for network in (one for one in (SMALL if options.smoke else NETWORKS) if one.name in options.networks):
        todo = [
            batch for batch in options.batches if (network.title, batch) not in {(row["network"], row["batch"]) for row in rows}
        ]
        if not todo:
            continue
        try:
            plan, inputs = engine_of(network, options.folder, target, options.batches)
            with ExitStack() as stack:
                workers = [stack.enter_context(worker_on(device, target)) for device in devices[: max(options.gpus)]]
                for worker in workers:
                    worker.load(plan)
                found = [measured(workers, options.gpus, inputs[:batch], options.seconds, options.rounds) for batch in todo]
        except Exception as error:  # one network's failure is its own
            found, todo = [[{"failed": one_line(error)}]], todo[:1]
        for batch, some in zip(todo, found, strict=True):
            rows += [{"network": network.title, "batch": batch, **row} for row in some]
            for row in rows[-len(some) :]:
                print(json.dumps(row), flush=True)
        save(options.output, known, rows)


def engine_of(network: Network, folder: Path, target: str, batches: Sequence[int]) -> tuple[Plan, np.ndarray]:
    """The network's engine in FP16, a profile for each batch size, and inputs of the network."""
    prepare(network, folder, INPUTS)
    name = onnx.load(onnx_file(network, folder), load_external_data=False).graph.input[0].name
    inputs = np.load(folder / f"{network.name}.inputs.npy")
    exact = [Profile({name: dict.fromkeys(("min", "opt", "max"), (batch, *inputs.shape[1:]))}) for batch in batches]
    recipe = Recipe(profiles=exact, precision="fp16", flags=("tf32",), workspace_mib=4096)
    return build(onnx_file(network, folder), recipe, backend=target), inputs


def worker_on(device: str, target: str) -> Worker:
    """A process that sees one GPU."""
    visible: Callable[[Sequence[str]], list[str]] = lambda command: ["env", f"CUDA_VISIBLE_DEVICES={device}", *command]  # noqa: E731
    return Worker(split_target(target)[1], launcher=visible)


def measured(workers: Sequence[Worker], counts: Sequence[int], inputs: np.ndarray, seconds: float, rounds: int) -> list[Row]:
    """A row for each number of GPUs: the rate, and how many times the rate of the first number it is."""
    feeds = {workers[0].inputs[0].name: inputs}
    answers = [worker.infer(feeds) for worker in workers]
    apart = max(float(np.abs(one - answers[0][name]).max()) for other in answers for name, one in other.items())
    calls = [lambda worker=worker: worker.infer(feeds) for worker in workers]
    found = rates({str(count): calls[:count] for count in counts}, seconds=seconds, rounds=rounds)
    one = found[str(counts[0])]
    rows: list[Row] = []
    for count in counts:
        gain = speedup(1e3 / one, 1e3 / found[str(count)], seed=0)
        rows.append(
            {
                "gpus": count,
                "requests_per_second": round(float(np.median(found[str(count)])), 2),
                "gain": {"median": gain.median, "low": gain.low, "high": gain.high},
                "rounds": rounds,
                "largest_difference": apart,
            }
        )
    return rows


if __name__ == "__main__":
    main()
