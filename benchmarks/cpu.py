"""The course's networks without a GPU: eager, torch.compile, ONNX Runtime in FP32 and INT8, OpenVINO, LiteRT, one thread each.

    python benchmarks/cpu.py OUTPUT.json [--seconds 12] [--networks small wide encoder] [--batches 1 8 32] [--litert PYTHON]

Each candidate has its own process, started anew for every batch size, so that torch.compile compiles for that one. All candidates
of a network and a batch size take turns in shuffled order, on held-out digits drawn anew in every round. INT8 means Q/DQ pairs with
ranges that the course's `MSECalibrator` found on training digits, lowered for this processor. An interrupted run goes on.

LiteRT takes part with ``--litert``. PYTHON is an interpreter that has Google's converter, see `benchmarks/litert_convert.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks import litert
from benchmarks.litert_convert import PACKAGES
from benchmarks.recording import Row, about, one_line, rows_of, save
from course_lib import models
from course_lib.benchmark import Comparison, compare, relative_error, sqnr_db
from course_lib.engines import ModelSource, Plan, Worker, available_backends, build
from course_lib.models import digits, export_onnx
from course_lib.precision import MSECalibrator, activations, calibrate, insert_qdq, lower_for_onnxruntime
from course_lib.recipe import Profile, Recipe

BATCHES = (1, 8, 32)
CHECKED = 448  # held-out digits that accuracy and error are taken on: whole batches of every size
CALIBRATED = 500  # training digits
CANDIDATES = ("eager", "torch.compile", "ONNX Runtime FP32", "ONNX Runtime INT8", "OpenVINO FP32")
LITERT = "LiteRT FP32"
CONVERTER = Path(__file__).with_name("litert_convert.py")


@dataclass(frozen=True)
class Network:
    """A trained network of the course and how its input is made of digits."""

    title: str
    factory: str
    arguments: tuple[str, ...]
    input: str

    def inputs(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Images ``(n, 1, 32, 32)`` as the network reads them: as they are, or as rows of pixels."""
        return {self.input: images if self.input == "image" else images[:, 0]}

    @cached_property
    def profile(self) -> Profile:
        shape = self.inputs(np.empty((1, 1, 32, 32)))[self.input].shape[1:]
        return Profile({self.input: {"min": (1, *shape), "opt": (8, *shape), "max": (32, *shape)}})


NETWORKS = {
    "small": Network("digits classifier, small", "classifier", ("small",), "image"),
    "wide": Network("digits classifier, wide", "classifier", ("wide",), "image"),
    "encoder": Network("encoder, 32 tokens", "encoder", (), "tokens"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=12, help="longest measuring of one network at one batch size")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--batches", nargs="*", type=int, default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument(
        "--litert", type=Path, metavar="PYTHON", help="an interpreter with litert-torch; without it LiteRT is left out"
    )
    options = parser.parse_args()
    known, rows = provenance(), rows_of(options.output)
    wanted = len(CANDIDATES) + bool(options.litert)
    for network in (NETWORKS[name] for name in options.networks):
        there = Counter(row["batch"] for row in rows if row["network"] == network.title)
        todo = [batch for batch in options.batches if there[batch] < wanted]
        with tempfile.TemporaryDirectory() as folder:
            sources = candidates(network, Path(folder), options.litert, options.batches) if todo else {}
            if todo and options.litert:
                known["versions"] |= {"litert": litert.version(), **converter_versions(options.litert)}
            for batch in todo:
                found = measured(network, sources, batch, options.seconds)
                rows = [row for row in rows if (row["network"], row["batch"]) != (network.title, batch)] + found
                for row in found:
                    print(line(row), flush=True)
                save(options.output, known, rows)


def provenance() -> Row:
    """Besides what every record says: the kernel's version, and how busy the machine was when the run began."""
    versions = {b.name: b.version for b in available_backends() if b.name in ("torch", "onnxruntime", "openvino") and b.version}
    more = {"driver": f"none: no GPU; {platform.system()} {platform.release()}", "load_at_start": round(os.getloadavg()[0], 2)}
    return {**about(versions), **more}


def candidates(
    network: Network, folder: Path, converter: Path | None = None, batches: Sequence[int] = BATCHES
) -> dict[str, ModelSource | Plan | str]:
    """What each candidate's process loads; one line where it could not be made. LiteRT takes part where it has a converter."""
    module, model = f"course_lib.models:{network.factory}", folder / "model.onnx"
    eager = ModelSource(module, network.arguments)
    export_onnx(getattr(models, network.factory)(*network.arguments), model)
    found: dict[str, ModelSource | Plan | str] = {
        "eager": eager,
        "torch.compile": ModelSource(module, network.arguments, variant="compile"),
    }
    makers = {
        "ONNX Runtime FP32": lambda: build(model, Recipe(profiles=[network.profile]), backend="onnxruntime"),
        "ONNX Runtime INT8": lambda: int8_plan(network, model),
        "OpenVINO FP32": lambda: build(model, Recipe(profiles=[network.profile]), backend="openvino"),
    }
    if converter is not None:
        makers[LITERT] = lambda: litert_plan(network, folder / "model.tflite", converter, batches)
    for name, make in makers.items():
        try:
            found[name] = make()
        except Exception as error:  # a candidate's failure is its own
            found[name] = one_line(error)
    return found


def int8_plan(network: Network, model: Path) -> Plan:
    """Pairs at the ranges that the calibrator found on training digits, in the form that this processor runs fast."""
    import onnx

    graph, images = onnx.load(model), digits("train").images[:CALIBRATED]
    batches = [network.inputs(images[start : start + 50]) for start in range(0, CALIBRATED, 50)]
    ranges = calibrate(graph, batches, MSECalibrator(), tensors=activations(graph), progress=False)
    recipe = Recipe(precision="int8", profiles=[network.profile])
    return build(lower_for_onnxruntime(insert_qdq(graph, ranges)), recipe, backend="onnxruntime")


def litert_plan(network: Network, converted: Path, python: Path, batches: Sequence[int]) -> Plan:
    """The network as Google's converter makes it of the PyTorch module, with a signature for each batch size."""
    shape = network.profile[network.input].opt[1:]
    command = [
        python,
        CONVERTER,
        converted,
        f"course_lib.models:{network.factory}",
        *network.arguments,
        "--input",
        network.input,
    ]
    numbers = ["--shape", *shape, "--batches", *batches]
    done = subprocess.run([*map(str, command), *map(str, numbers)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
    return litert.converted(converted.read_bytes())


def converter_versions(python: Path) -> dict[str, str]:
    """The versions of the packages that convert for LiteRT."""
    program = f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {PACKAGES}}}))"
    found: dict[str, str] = json.loads(subprocess.run([python, "-c", program], capture_output=True, check=True).stdout)
    return found


def measured(network: Network, sources: Mapping[str, ModelSource | Plan | str], batch: int, seconds: float) -> list[Row]:
    """A row for each candidate: what it does to the answers, and its speed over eager."""
    test, rng = digits("test"), np.random.default_rng()
    chunks = [network.inputs(test.images[start : start + batch]) for start in range(0, CHECKED, batch)]
    failed = {name: source for name, source in sources.items() if isinstance(source, str)}
    subjects: dict[str, Worker] = {}
    answers: dict[str, np.ndarray] = {}
    with ExitStack() as stack:
        for name in sources.keys() - failed.keys():
            kind = litert.LiteRTWorker if name == LITERT else Worker
            worker = stack.enter_context(kind(timeout_s=240))  # torch.compile takes a minute for its first answer
            try:
                worker.load(sources[name])  # type: ignore[arg-type]
                answers[name] = np.concatenate([worker.infer(feeds)["logits"] for feeds in chunks])
                subjects[name] = worker
            except Exception as error:
                failed[name] = one_line(error)
        draw = lambda: network.inputs(test.images[rng.choice(len(test), batch, replace=False)])  # noqa: E731
        speeds = compare(subjects, draw, baseline="eager", time_limit_s=seconds)
    right = {name: float((answer.argmax(1) == test.labels[:CHECKED]).mean()) for name, answer in answers.items()}
    rows: list[Row] = []
    for name in sources:
        row: Row = {"network": network.title, "batch": batch, "candidate": name}
        if name in failed:
            rows.append({**row, "failed": failed[name]})
        else:
            row |= {**_speed(speeds, name), "relative_error": relative_error(answers["eager"], answers[name])}
            if name != "eager":
                row["sqnr_db"] = sqnr_db(answers["eager"], answers[name])
            rows.append({**row, "accuracy": right[name], "eager_accuracy": right["eager"]})
    return rows


def _speed(speeds: Comparison, name: str) -> Row:
    found = {"ms": speeds.measurements[name].median_ms, "rounds": len(speeds.measurements[name].latencies_ms)}
    return found if name == "eager" else {**found, "speedup": asdict(speeds.speedups[name])}


def line(row: Row) -> str:
    begin = f"{row['network']:25} batch {row['batch']:2} {row['candidate']:18}"
    if "failed" in row:
        return f"{begin} failed: {row['failed']}"
    over = "{median:.2f}x [{low:.2f}-{high:.2f}] over eager, ".format(**row["speedup"]) if "speedup" in row else ""
    return f"{begin} {row['ms']:8.3f} ms, {over}error {row['relative_error']:.1e}, {row['accuracy']:.1%} right"


if __name__ == "__main__":
    main()
