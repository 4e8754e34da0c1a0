"""A decoder of GPT-2's shape in FP16: prompts, and steps with a cache, by PyTorch, ONNX Runtime and TensorRT 8.6.

    python benchmarks/gpt2.py build --folder /tmp/gpt2 --target tensorrt@trt8 --plugin LIBRARY --minutes 9
    python benchmarks/gpt2.py measure --folder /tmp/gpt2 --target tensorrt@trt8 --plugin LIBRARY --output FILE.json --minutes 9
    python benchmarks/gpt2.py show FILE.json
    python benchmarks/gpt2.py --smoke --output FILE.json

`build` and `measure` take small cases with ``--small``, to see in a minute whether all of it works on a machine.

12 layers of width 768, 124 million random weights. A prompt fills an empty cache. A step adds one token of each sequence at position 512
of a cache of 1024. Each computes the logits of the last token. LIBRARY is from `attention_parts.fused_attention`; without it, the
engines with the plugin are left out. Both commands skip what is there, so a second call continues where the first one was cut. `build`
tries again what failed, and `measure` does with ``--retry``. `--smoke` does all of it on a CPU with small cases, without TensorRT.

PyTorch's cache and the plugin's are written in place. The plain engines and ONNX Runtime write the whole cache to other memory, because
their graph has no operator that writes in place. Before a candidate is timed, its logits and its new keys and values are compared with
PyTorch's in FP32. Those that write in place then make the next step, which is compared as well. Calls are timed on the device between
two events, interleaved round by round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.gpt2_parts.cases import BASELINE, CASES, FORMS, REFERENCE, SMALL, Candidate, Case, candidates
from benchmarks.gpt2_parts.runner import CandidateFailed, Runner, Timed, largest_errors
from benchmarks.machine import machine
from benchmarks.recording import Row, save
from course_lib._util.files import write_atomically
from course_lib.benchmark import Comparison, compare
from course_lib.engines import default_runner, split_target
from course_lib.engines.cuda.driver import capability
from course_lib.engines.worker.environment import HERE
from course_lib.errors import CourseError, EngineError, WorkerDied
from course_lib.recipe import Recipe

_TRT_BUILD = Path(__file__).parent / "headline" / "trt_build.py"
_WORKSPACE_MIB = 4096
_INPUTS = 16  # that are taken in turn


@dataclass(frozen=True)
class Site:
    """Where and for whom is built and measured.

    Attributes:
        folder: takes all files.
        target: of the engines, such as ``tensorrt@trt8``.
        plugin: library of the course's attention plugins, compiled for the target; None leaves its engines out.
        gpu: whether there is one.
    """

    folder: Path
    target: str
    plugin: Path | None
    gpu: bool

    def model(self, case: Case, form: str) -> Path:
        return self.folder / f"{case.name}.{form}.onnx"

    def plan(self, case: Case, form: str) -> Path:
        return self.folder / f"{case.name}.{form}.plan"

    def outcome(self, case: Case, form: str) -> Path:
        """What `trt_build` said of a plan."""
        return self.folder / f"{case.name}.{form}.json"

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(form for form in FORMS if form == "plain" or (self.gpu and self.plugin))

    def available(self, case: Case) -> list[Candidate]:
        """The candidates that can have a row: what needed building was built, or is known to fail."""
        needed = {"onnxruntime": self.model, "tensorrt": self.outcome}
        found = [one for one in candidates(gpu=self.gpu) if not one.form or one.form in self.forms]
        return [one for one in found if not one.form or needed[one.group](case, one.form).exists()]


# ---- building


def build(site: Site, cases: Sequence[Case], deadline: float) -> None:
    """Write the graphs and build the engines that are missing: steps before prompts, and of each those with the plugin first."""
    started = time.monotonic()
    for form, case in sorted(itertools.product(site.forms, cases), key=lambda one: not one[1].is_step):
        name = f"{time.monotonic() - started:5.0f} s  {case.name}.{form}"
        if time.monotonic() > deadline:
            print(f"{name}: no time left, call again", flush=True)
            continue
        try:
            said = _built(site, case, form, deadline)
        except (CourseError, subprocess.TimeoutExpired) as error:
            said = {"failed": str(error)}
        print(f"{name}: {json.dumps(said)}", flush=True)


def _built(site: Site, case: Case, form: str, deadline: float) -> Row:
    outcome = site.outcome(case, form)
    if not site.model(case, form).exists():
        _export(site, case, form)
    if not site.gpu:
        return {"exported": True}
    if outcome.exists() and "failed" not in (known := json.loads(outcome.read_text())):
        return {**known, "kept": True}
    recipe = Recipe(workspace_mib=_WORKSPACE_MIB).wire() | {
        "flags": ["tf32", "fp16"]
    }  # the graph is FP16, and 8.6 types weakly
    request = {
        "model": str(site.model(case, form)),
        "plan": str(site.plan(case, form)),
        "recipe": recipe,
        "plugins": [str(site.plugin)] if form == "plugin" else [],
        "calibration": None,
    }
    file = outcome.with_suffix(".request.json")
    file.write_text(json.dumps(request))
    command = [*split_target(site.target)[1].command, str(_TRT_BUILD), str(file)]
    environment = {**os.environ, "PYTHONPATH": "", "CUDA_MODULE_LOADING": "LAZY"}
    limit = max(deadline - time.monotonic(), 1)
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, env=environment)
    if done.returncode or not done.stdout.strip():
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1][:300]
        found: Row = {"failed": f"{_TRT_BUILD.name} ended with {done.returncode}: {said}"}
    else:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    write_atomically(outcome, json.dumps(found).encode())
    return found


def _export(site: Site, case: Case, form: Any) -> None:
    import onnx

    from benchmarks.gpt2_parts.onnx_opset17 import export_for_tensorrt8
    from benchmarks.gpt2_parts.torch_steps import network

    model = export_for_tensorrt8(network(case.shape), form, new=case.new, batch=case.batch, length=case.length)
    partial = site.model(case, form).with_suffix(".partial")
    onnx.save(model, partial)
    partial.rename(site.model(case, form))


# ---- measuring


def measure(
    site: Site, cases: Sequence[Case], seconds: float, deadline: float, output: Path | None, *, retry: bool = False
) -> list[Row]:
    """Measure the cases that lack a row, with `retry` also those in which something failed; the record is written after each."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(site.folder / "inductor"))
    rows: list[Row] = json.loads(output.read_text())["rows"] if output and output.exists() else []
    known = {**machine(site.target), "settings": SETTINGS}
    with Runners(site) as runners:
        for case in cases:
            there = {row["candidate"] for row in rows if row["case"] == case.name and not (retry and "failed" in row)}
            if {one.name for one in site.available(case)} <= there:
                continue
            if time.monotonic() > deadline:
                print(f"{case.name}: no time left, call again", flush=True)
                continue
            found = list(_rows(runners, case, seconds))
            rows = [row for row in rows if row["case"] != case.name] + found
            for row in found:
                print(line(row), flush=True)
            if output:
                save(output, known, rows)
    return rows


SETTINGS = {
    "what": "device time of one call on inputs that are on the device, all candidates of a case interleaved",
    "errors": "relative errors against eager FP32: logits of the last token, and the last block's new keys and values in the cache",
    "step": "one token of each sequence, its position on the device; PyTorch masks the slots after it, the plugin does not read them",
    "cache": "written in place by PyTorch and the plugin; the plain engines and ONNX Runtime write all of it to other memory",
    "compile": "fullgraph, one shape at a time",
}


class Runners:
    """A process for each group, started when it is first needed. A context manager: leaving it ends them."""

    def __init__(self, site: Site) -> None:
        self.site, self._environment = site, split_target(site.target)[1]
        self._open: dict[str, Runner] = {}
        self._begun: dict[str, Case] = {}

    def __enter__(self) -> Runners:
        return self

    def __exit__(self, *_: object) -> None:
        for group in list(self._open):
            self.drop(group)

    def ready(self, candidate: Candidate, case: Case) -> Runner:
        """The process of a candidate, which it holds."""
        group = candidate.group
        if group not in self._open:
            engines = group == "tensorrt"
            self._open[group] = Runner(self._environment if engines else HERE, self.site.plugin if engines else None)
        runner = self._open[group]
        if self._begun.get(group) != case:
            runner.begin(case)
            self._begun[group] = case
        runner.hold(candidate, self._file(candidate, case))
        return runner

    def drop(self, group: str) -> None:
        """End a group's process."""
        self._begun.pop(group, None)
        if runner := self._open.pop(group, None):
            runner.close()

    def _file(self, candidate: Candidate, case: Case) -> Path | None:
        if not candidate.form:
            return None
        if candidate.group == "onnxruntime":
            return self.site.model(case, candidate.form)
        if failed := json.loads(self.site.outcome(case, candidate.form).read_text()).get("failed"):
            raise EngineError(failed)
        return self.site.plan(case, candidate.form)


def _rows(runners: Runners, case: Case, seconds: float) -> Iterator[Row]:
    """A row for each candidate; one that fails has ``failed``, one line, instead of figures."""
    site = runners.site
    found = site.available(case)
    failed: dict[str, str] = {}
    checked: dict[str, dict[str, float]] = {}
    ready: dict[str, Timed] = {}

    def fail(candidate: Candidate, error: CourseError) -> None:
        """It, and with its process everything that the process held."""
        failed[candidate.name] = " ".join(str(error).split())
        ready.pop(candidate.name, None)
        if isinstance(error, WorkerDied) or (isinstance(error, CandidateFailed) and error.died):
            runners.drop(candidate.group)
            for name in [name for name, timed in ready.items() if timed.candidate.group == candidate.group]:
                failed[name] = f"its process ended with {candidate.name}"
                del ready[name]

    want: list[dict[str, np.ndarray]] = []
    try:
        want = runners.ready(REFERENCE, case).answers(REFERENCE, case)
    except CourseError as error:
        fail(REFERENCE, error)
    for candidate in found if want else ():
        try:
            runner = runners.ready(candidate, case)
            checked[candidate.name] = largest_errors(runner.answers(candidate, case), want)
            runner.time(candidate, 1)
            ready[candidate.name] = Timed(runner, candidate)
        except CourseError as error:
            fail(candidate, error)
    measured: Comparison | None = None
    numbers = itertools.count()
    while BASELINE in ready and measured is None:
        try:
            measured = compare(
                ready, lambda: {"index": np.array(next(numbers) % _INPUTS)}, baseline=BASELINE, time_limit_s=seconds
            )
        except CandidateFailed as error:
            fail(error.candidate, error)
    for candidate in found:
        row: Row = {"case": case.name, **asdict(case), "candidate": candidate.name}
        if measured is None or candidate.name not in measured.measurements:
            missing = f"{REFERENCE.name} failed: {failed[REFERENCE.name]}" if not want else f"{BASELINE} failed"
            yield {**row, "failed": failed.get(candidate.name, missing)[:600]}
            continue
        rivals = [one.name for one in found if one.group == "torch" and one.name in measured.measurements and one != candidate]
        yield {
            **row,
            "ms": measured.measurements[candidate.name].median_ms,
            "rounds": len(measured.measurements[candidate.name].latencies_ms),
            "speedup": {name: asdict(measured.ratio(name, candidate.name, seed=0)) for name in rivals},
            "relative_errors": checked[candidate.name],
            **_kept_of_build(site, case, candidate),
        }


def _kept_of_build(site: Site, case: Case, candidate: Candidate) -> Row:
    if candidate.group != "tensorrt":
        return {}
    built = json.loads(site.outcome(case, candidate.form).read_text())
    return {key: built[key] for key in ("build_s", "plan_mb", "kernels", "kernel_dtypes") if key in built}


# ---- showing


def line(row: Row) -> str:
    """One row for the terminal."""
    begin = f"{row['case']:14} {row['candidate']:42}"
    if "failed" in row:
        return f"{begin} failed: {row['failed']}"
    over = [f"{_ratio(row, name)} over {name}" for name in row["speedup"]]
    error = max(row["relative_errors"].values())
    return f"{begin} {row['ms']:8.3f} ms, {', '.join([*over, f'largest error {error:.1e}'])}"


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    rivals = list(dict.fromkeys(name for row in rows for name in row.get("speedup", ())))
    head = ["case", "candidate", "ms", *(f"over {name}" for name in rivals), "error of the logits"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        begin = [row["case"], row["candidate"]]
        if "failed" in row:
            lines.append([*begin, "failed: " + row["failed"], *[""] * (len(head) - 3)])
            continue
        figures = [_ratio(row, name) if name in row["speedup"] else "" for name in rivals]
        lines.append([*begin, f"{row['ms']:.3f}", *figures, f"{row['relative_errors']['logits']:.1e}"])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _ratio(row: Row, name: str) -> str:
    found = row["speedup"][name]
    return f"{found['median']:.2f}x [{found['low']:.2f}-{found['high']:.2f}]"


# ---- the command line


def smoke(folder: Path, output: Path | None) -> list[Row]:
    """The whole way with small cases on a CPU."""
    folder.mkdir(parents=True, exist_ok=True)
    site = Site(folder, "onnxruntime", None, gpu=False)
    build(site, SMALL, time.monotonic() + 120)
    return measure(site, SMALL, 0.3, time.monotonic() + 120, output)


def main() -> None:
    options = parsed()
    try:
        if options.smoke:
            with tempfile.TemporaryDirectory() as folder:
                smoke(options.folder or Path(folder), options.output)
        elif options.command == "show":
            print(table(json.loads(options.file.read_text())["rows"]))
        else:
            if capability() is None:
                raise EngineError(f"{options.command} needs an NVIDIA GPU; use --smoke on a CPU")
            split_target(options.target)  # an unknown environment is an error before anything is built
            folder = options.folder.resolve() / ("small" if options.small else "full")  # equal names of cases
            folder.mkdir(parents=True, exist_ok=True)
            plugin = options.plugin.resolve() if options.plugin else None
            site = Site(folder, options.target, plugin, gpu=True)
            cases = SMALL if options.small else [case for case in CASES if case.name in options.cases]
            deadline = time.monotonic() + 60 * options.minutes
            if options.command == "build":
                build(site, cases, deadline)
            else:
                measure(site, cases, options.seconds, deadline, options.output, retry=options.retry)
    except CourseError as error:
        sys.exit(f"error: {error}")


def parsed() -> argparse.Namespace:
    names = [case.name for case in CASES]
    files = argparse.ArgumentParser(add_help=False)
    files.add_argument("--folder", type=Path, help="of everything that is built")
    files.add_argument("--output", type=Path, help="the record, which is continued where it exists")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, parents=[files])
    parser.add_argument("--smoke", action="store_true", help="all of it on a CPU with small cases")
    commands = parser.add_subparsers(dest="command")
    for name in ("build", "measure"):
        command = commands.add_parser(name, parents=[files])
        command.add_argument("--target", default=default_runner())
        command.add_argument("--plugin", type=Path, help="the attention plugins, compiled for the target's TensorRT")
        command.add_argument("--minutes", type=float, default=9, help="nothing new is begun after these")
        command.add_argument("--small", action="store_true", help="small cases in place of the others")
        command.add_argument("--cases", nargs="*", default=names, choices=names)
        if name == "measure":
            command.add_argument("--retry", action="store_true", help="measure cases again in which something failed")
            command.add_argument("--seconds", type=float, default=15, help="longest measuring of one case")
    commands.add_parser("show").add_argument("file", type=Path)
    options = parser.parse_args()
    if not options.smoke and options.command is None:
        parser.error("choose build, measure or show, or --smoke")
    if options.command in ("build", "measure") and options.folder is None:
        parser.error(f"{options.command} needs --folder")
    return options


if __name__ == "__main__":
    main()
