"""The headline table: five networks at batch 1, 8 and 64 under eager, CUDA graphs, torch.compile, onnxruntime and TensorRT.

    python benchmarks/networks.py build --folder /tmp/plans --target tensorrt@trt8 --jobs 8 --minutes 9 --pieces compile
    python benchmarks/networks.py build --folder /tmp/plans --target tensorrt@trt8 --jobs 1 --minutes 9 --pieces tensorrt
    python benchmarks/networks.py measure --folder /tmp/plans --target tensorrt@trt8 --output FILE.json --minutes 9
    python benchmarks/networks.py show FILE.json [--figure FILE.png]
    python benchmarks/networks.py --smoke --output FILE.json

`build` exports, builds engines and fills torch's compiler cache. Engines are built one at a time (`--jobs 1`), because TensorRT times
kernels while it builds. With ``--plugin``, the library of `attention_parts.fused_attention`, encoders are also built with it.
`benchmarks/timings` has the timings of tactics of ResNet-50's, U-Net's, ViT's and the detector's engines, and of BERT's with the plugin,
on an H200: set COURSE_TIMING_CACHE to a copy of it. ResNet-50's then took 25 and 24 s in place of 113 and 127, and U-Net's in FP16 16
in place of 179. ViT's in FP16 took 246 s, as long as without; why is not known.
`measure` measures one network at one batch size after the other. Both skip what is there, so a second call goes on where the first was
cut. `--smoke` does all of it on a CPU with small networks and onnxruntime in TensorRT's place.

Calls are timed on the device between two events, in processes that hold their inputs; copies are not counted. All candidates of a
network and a batch size are interleaved round by round on inputs taken in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.headline import building, material, measuring
from benchmarks.headline.building import Site
from benchmarks.headline.cases import BATCHES, COMPILED, IMAGES, NETWORKS, PLUGIN, SMALL, Network
from benchmarks.machine import machine
from course_lib._util.files import write_atomically
from course_lib.engines import Worker, default_runner, split_target
from course_lib.engines.cuda.driver import capability
from course_lib.errors import BackendUnavailable, CourseError

NAMES = [network.name for network in NETWORKS]
SMALL_BATCHES, SMALL_IMAGES = (1, 2), 16


def main() -> None:
    options = parsed()
    try:
        if options.smoke:
            with tempfile.TemporaryDirectory() as folder:
                smoke(options.folder or Path(folder), options.networks, options.output)
        else:
            COMMANDS[options.command](options)
    except CourseError as error:
        sys.exit(f"error: {error}")


def build_command(options: argparse.Namespace) -> None:
    site = site_of(options)
    name, environment = split_target(site.target)
    with Worker(environment) as worker:  # a wrong target must not be recorded as fifteen builds that failed
        found = next((row for row in worker.backends() if row["name"] == name), {"no_build": f"no backend {name!r}"})
    if found["no_build"]:
        raise BackendUnavailable(f"{site.target}: {'; run '.join((found['no_build'], *found.get('commands', ())))}")
    build(site, named(NETWORKS, options.networks), options.jobs, time.monotonic() + 60 * options.minutes, options.first)


def measure_command(options: argparse.Namespace) -> None:
    deadline = time.monotonic() + 60 * options.minutes
    networks = named(NETWORKS, options.networks)
    measure(site_of(options), networks, options.batches, options.seconds, deadline, options.output)


def prepare_command(options: argparse.Namespace) -> None:
    for network in named(SMALL if options.small else NETWORKS, options.networks):
        material.prepare(network, options.folder, SMALL_IMAGES if options.small else IMAGES)
    print("prepared")


def show_command(options: argparse.Namespace) -> None:
    """The record as Markdown tables, and its figure."""
    from benchmarks.headline.table import headline_table
    from course_lib.style import png
    from course_lib.teaching.benchmarking.headline import draw_headline

    record = json.loads(options.file.read_text())
    print(headline_table(record["rows"]))
    if options.figure:
        options.figure.write_bytes(png(draw_headline(record["rows"])))


COMMANDS = {"build": build_command, "measure": measure_command, "prepare": prepare_command, "show": show_command}


def site_of(options: argparse.Namespace) -> Site:
    options.folder.mkdir(parents=True, exist_ok=True)
    gpu = capability() is not None
    pieces = tuple(getattr(options, "pieces", ()))
    compiled = tuple(batch for batch in COMPILED if batch in options.profiles)
    return Site(
        options.folder.resolve(),
        options.target,
        tuple(options.profiles),
        compiled,
        gpu=gpu,
        plugin=options.plugin,
        pieces=pieces,
    )


def build(site: Site, networks: list[Network], jobs: int, deadline: float, first: str = building.FIRST) -> None:
    """Build what is missing, and say of each piece what came of it."""
    started = time.monotonic()
    for name, result in building.build_all(site, networks, jobs=jobs, deadline=deadline, first=first):
        print(f"{time.monotonic() - started:5.0f} s  {name:32} {json.dumps(result)}", flush=True)


def measure(
    site: Site, networks: list[Network], batches: list[int], seconds: float, deadline: float, output: Path | None
) -> dict[str, Any]:
    """Measure what has no rows yet; the record, which is written after every batch size."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(site.folder / "inductor"))
    record: dict[str, Any] = json.loads(output.read_text()) if output and output.exists() else {"rows": []}
    record = {**machine(site.target), **about(site), "rows": record["rows"]}
    for network in networks:
        if not measuring.folder_is_ready(site, network):
            print(f"{network.title}: not built yet", flush=True)
            continue
        todo = [batch for batch in batches if not measuring.is_done(record["rows"], site, network, batch)]
        with measuring.Case(site, network) as case:
            for batch in todo:
                if time.monotonic() > deadline:
                    print(f"{network.title} batch {batch}: no time left, call again", flush=True)
                    break
                rows = case.rows(batch, seconds)
                others = [row for row in record["rows"] if (row["network"], row["batch"]) != (network.title, batch)]
                record["rows"] = others + rows
                for row in rows:
                    print(measuring.line(row), flush=True)
                if output:
                    write_atomically(output, json.dumps(record, indent=1).encode() + b"\n")
    return record


def about(site: Site) -> dict[str, Any]:
    """What a reader of the record has to know besides the machine."""
    return {
        "what": "device time of one call on inputs that are on the device, all candidates of a row's network and batch interleaved",
        "settings": {
            "eager fp32": "torch's defaults: TF32 in cuDNN's convolutions, none in matrix products",
            "tf32": "torch.set_float32_matmul_precision('high'): TF32 in matrix products, too",
            "fp16": "convolutional networks with channels-last weights",
            "compile": "one batch size at a time: automatic_dynamic_shapes off; batches " + ", ".join(map(str, COMPILED)),
            "engine profiles": f"one engine, an optimization profile for each of the batch sizes {list(site.profiles)}",
            "int8": "same dtype for it means eager fp16: eager has no INT8",
            "tactic sources": tactic_sources(site.target),
            "clock": "engines and CUDA graphs: replays between two events, 2 ms or more; engines without one: calls in a row, 2 ms or "
            "more; eager and torch.compile: the second of two calls",
        },
    }


def tactic_sources(target: str) -> str:
    """What the variable says in the target's own interpreter, whose command may set it."""
    ask = "import os; print(os.environ.get('COURSE_TACTIC_SOURCES') or 'all')"
    command = [*split_target(target)[1].command, "-c", ask]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def smoke(folder: Path, names: list[str], output: Path | None) -> dict[str, Any]:
    """The whole way with small networks on a CPU."""
    folder.mkdir(parents=True, exist_ok=True)
    site, networks = Site(folder, "onnxruntime", SMALL_BATCHES, (), gpu=False, small=True), named(SMALL, names)
    for network in networks:  # here, one after the other: each process would import torch first
        material.prepare(network, folder, SMALL_IMAGES)
    build(site, networks, jobs=2, deadline=time.monotonic() + 120)
    return measure(site, networks, list(SMALL_BATCHES), 0.2, time.monotonic() + 120, output)


def named(networks: tuple[Network, ...], names: list[str]) -> list[Network]:
    return [network for network in networks if network.name in names]


def parsed() -> argparse.Namespace:
    files = argparse.ArgumentParser(add_help=False)
    files.add_argument("--folder", type=Path, help="of everything that is built")
    files.add_argument("--output", type=Path, help="the record, which is continued where it exists")
    files.add_argument("--networks", nargs="*", default=NAMES, choices=NAMES)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[files])
    parser.add_argument("--smoke", action="store_true", help="all of it on a CPU with small networks")
    commands = parser.add_subparsers(dest="command")
    for name in ("build", "measure"):
        command = commands.add_parser(name, parents=[files])
        command.add_argument("--target", default=default_runner())
        command.add_argument(
            "--profiles", type=int, nargs="*", default=list(BATCHES), help="batch sizes of an engine's profiles"
        )
        command.add_argument("--minutes", type=float, default=9, help="nothing new is begun after these")
        command.add_argument("--plugin", type=Path, help="the attention plugin, compiled for the target's TensorRT")
        if name == "build":
            command.add_argument("--jobs", type=int, default=1, help="at a time")
            command.add_argument(
                "--pieces", nargs="*", default=(), help="beginnings of their names, such as tensorrt.fp16; all"
            )
            command.add_argument(
                "--first",
                default=building.FIRST,
                choices=("fp32", "fp16", "int8", PLUGIN),
                help="which of a network's engines is built first",
            )
        else:
            command.add_argument("--batches", type=int, nargs="*", default=list(BATCHES), choices=list(BATCHES))
            command.add_argument("--seconds", type=float, default=20, help="longest measuring of one network at one batch size")
    command = commands.add_parser("show")
    command.add_argument("file", type=Path)
    command.add_argument("--figure", type=Path)
    command = commands.add_parser("prepare", parents=[files], help="used by build")
    command.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if not options.smoke and options.command is None:
        parser.error("choose build, measure or show, or --smoke")
    if options.command in ("build", "measure", "prepare") and options.folder is None:
        parser.error(f"{options.command} needs --folder")
    return options


if __name__ == "__main__":
    main()
