"""What makes one TensorRT engine of a network faster than another, one difference at a time: libraries, shapes, tensors' types, company.

    python benchmarks/separation.py export  --folder DIR
    python benchmarks/separation.py compile --folder DIR
    python benchmarks/separation.py build   --folder DIR --target tensorrt@trt8 --with-libraries tensorrt@tt [--company] --minutes 9
    python benchmarks/separation.py measure --folder DIR --with-libraries tensorrt@tt --output FILE.json

`compile` fills the cache of torch's compiler, side by side. `build` skips what is there. Without ``--company`` engines are built one at
a time, with the timings of earlier ones; with it, those that are to be built beside each other, without. All engines and torch's ways
are measured as CUDA graphs in turn, on one input on the device.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.machine import machine
from benchmarks.recording import one_line, save
from benchmarks.separation_parts.cases import BATCHES, RESTRICTED, SHAPES, Case, cases, model_for
from course_lib.benchmark import compare
from course_lib.engines import Worker, split_target
from course_lib.engines.worker.environment import HERE, Environment
from course_lib.errors import CourseError

_CHILD = Path(__file__).with_name("separation_parts") / "child.py"
_BUILDERS = {False: Path(__file__).with_name("headline") / "trt_build.py", True: _CHILD.with_name("torch_tensorrt_build.py")}
BASELINE = "torch compile"
IN_A_ROW = {1: 20, 8: 20, 64: 5}  # calls between two events by batch size, as a service under load makes them


class Holder(Worker):
    """The parent's end of `child`."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment, launcher=lambda _: [*environment.command, str(_CHILD)], timeout_s=240.0)

    def hold(self, name: str, images: np.ndarray, **how: Any) -> np.ndarray:
        """Make a call ready; the output of a first one."""
        _, answer = self._ask({"do": "hold", "name": name, **how}, {"images": images})
        return answer["logits"]

    def time(self, name: str, calls: int) -> float:
        """Milliseconds of one call."""
        return float(self._ask({"do": "time", "name": name, "calls": calls})[0]["ms"])

    def drop(self) -> None:
        """Forget what is held."""
        self._ask({"do": "drop", "name": ""})


@dataclass(frozen=True)
class Subject:
    """For `course_lib.benchmark.compare`, whose feeds are not used: the input is on the device."""

    holder: Holder
    name: str
    calls: int

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        return self.holder.time(self.name, self.calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("export", "compile", "build", "measure"))
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--target", default="tensorrt@trt8", help="without cuBLAS and cuDNN")
    parser.add_argument("--with-libraries", default="tensorrt@tt", help="with them, and with Torch-TensorRT")
    parser.add_argument("--company", action="store_true", help="build what is to be built side by side")
    parser.add_argument("--first", type=int, default=100, help="how many of the cases")
    parser.add_argument("--minutes", type=float, default=9, help="nothing new is begun after these")
    parser.add_argument("--seconds", type=float, default=8, help="longest measuring of a precision at a batch size")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(options.folder.resolve() / "inductor"))
    {"export": export, "compile": compile_all, "build": build, "measure": measure}[options.command](options)


def export(options: argparse.Namespace) -> None:
    """ONNX files of all cases, which takes a CPU's time only."""
    import onnx

    from benchmarks import yardsticks
    from course_lib import models

    for network in SHAPES:
        exported = models.export_onnx(yardsticks.make(network), options.folder / f"{network}.onnx", opset=17)
        for case in cases():
            if case.network == network and not case.torch_tensorrt:
                onnx.save(model_for(case, exported), options.folder / f"{case.key}.onnx")


def compile_all(options: argparse.Namespace) -> None:
    """Fill the cache of torch's compiler for everything that `measure` will hold, four at a time."""

    def one(network: str, precision: str, batch: int) -> None:
        with Holder(HERE) as torch:
            torch.hold(BASELINE, inputs(network)[:batch], factory=network, precision=precision, compiled=True)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(one, *each) for each in itertools.product(SHAPES, ("fp16", "fp32"), BATCHES)]:
            done.result()


def inputs(network: str) -> np.ndarray:
    """As many images as the largest batch has, float32."""
    return np.random.default_rng(0).standard_normal((max(BATCHES), *SHAPES[network]), np.float32)


def build(options: argparse.Namespace) -> None:
    """What is missing; each piece leaves a JSON file that says what came of it."""
    ends = time.monotonic() + 60 * options.minutes
    todo = [
        case for case in cases()[: options.first] if case.company == options.company and not _result(options, case).exists()
    ]
    if options.company:
        running = [(case, _started(options, case)) for case in todo]
        for case, process in running:
            _finished(options, case, process, ends - time.monotonic())
        return
    for case in todo:
        if time.monotonic() < ends:
            _finished(options, case, _started(options, case), ends + 100 - time.monotonic())


def _started(options: argparse.Namespace, case: Case) -> subprocess.Popen[str]:
    folder: Path = options.folder.resolve()
    request = {
        "model": str(folder / f"{case.key}.onnx"),
        "plan": str(folder / f"{case.key}.plan"),
        "recipe": case.recipe,
        "calibration": None,
        "network": case.network,
        "shape": SHAPES[case.network],
        "batch": case.batches[0],
        "precision": case.precision,
    }
    file = folder / f"{case.key}.request.json"
    file.write_text(json.dumps(request))
    environment = {**os.environ, "PYTHONPATH": "", "CUDA_MODULE_LOADING": "LAZY"}
    environment["COURSE_TACTIC_SOURCES"] = "" if case.libraries else RESTRICTED
    environment["COURSE_TIMING_CACHE"] = (
        "" if case.company else str(folder / ("timings" if case.libraries else "timings-without"))
    )
    command = split_target(options.with_libraries if case.libraries else options.target)[1].command
    return subprocess.Popen(
        [*command, str(_BUILDERS[case.torch_tensorrt]), str(file)],
        stdout=subprocess.PIPE,
        stderr=(folder / f"{case.key}.log").open("w"),
        text=True,
        env=environment,
    )


def _finished(options: argparse.Namespace, case: Case, process: subprocess.Popen[str], seconds: float) -> None:
    try:
        said, _ = process.communicate(timeout=max(seconds, 1))
        found = json.loads(said.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return
    except (IndexError, ValueError):
        found = {"failed": f"the builder ended with {process.returncode}"}
    _result(options, case).write_text(json.dumps(found))
    print(case.key, json.dumps({key: value for key, value in found.items() if key != "kernel_dtypes"}), flush=True)


def _result(options: argparse.Namespace, case: Case) -> Path:
    return Path(options.folder, f"{case.key}.json")


def measure(options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    known = {**machine(options.with_libraries), "calls_in_a_row": {str(batch): calls for batch, calls in IN_A_ROW.items()}}
    with Holder(HERE) as torch, Holder(split_target(options.with_libraries)[1]) as engines:
        for network, precision, batch in itertools.product(SHAPES, ("fp16", "fp32"), BATCHES):
            try:
                rows += measured(options, network, precision, inputs(network)[:batch], torch, engines)
            except CourseError as error:
                rows.append(
                    {"network": network, "precision": precision, "batch": batch, "engine": "", "failed": one_line(error)}
                )
            save(options.output, known, rows)
            torch.drop()
            engines.drop()


def measured(
    options: argparse.Namespace, network: str, precision: str, images: np.ndarray, torch: Holder, engines: Holder
) -> list[dict[str, Any]]:
    """A row for each engine and for each of torch's ways, the baseline first."""
    batch, built = len(images), {}
    known = {"factory": network, "compiled": False}
    want = torch.hold("reference", images, **known, precision="fp32")
    answers = {
        name: torch.hold(name, images, **{**known, "compiled": name == BASELINE}, precision=precision)
        for name in (BASELINE, "torch eager")
    }
    for case in cases():
        plan = options.folder.resolve() / f"{case.key}.plan"
        if (case.network, case.precision) == (network, precision) and batch in case.batches and plan.exists():
            built[case.name] = {**asdict(case), **json.loads(_result(options, case).read_text())}
            answers[case.name] = engines.hold(case.name, images, plan=str(plan))
    found = {}
    for calls in (IN_A_ROW[batch], 1):
        subjects = {name: Subject(engines if name in built else torch, name, calls) for name in answers}
        found[calls] = compare(subjects, dict, baseline=BASELINE, time_limit_s=options.seconds)
    rows = []
    for name, answer in answers.items():
        row = {"network": network, "precision": precision, "batch": batch, "engine": name, **built.get(name, {})}
        for calls, prefix in ((IN_A_ROW[batch], ""), (1, "single_")):
            row[f"{prefix}ms"] = found[calls].measurements[name].median_ms
            if name != BASELINE:
                row[f"{prefix}speedup"] = asdict(found[calls].speedups[name])
        row["relative_error"] = float(np.linalg.norm(answer - want) / np.linalg.norm(want))
        row["rounds"] = len(found[IN_A_ROW[batch]].measurements[name].latencies_ms)
        rows.append(row)
        print(
            network,
            precision,
            batch,
            name,
            f"{row['ms']:.4f} ms, single {row['single_ms']:.4f}, {row['relative_error']:.1e}",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    main()
