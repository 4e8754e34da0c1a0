"""Grading throughput by the number of GPUs, and proof from the signed verdicts that each GPU was used by one timing at a time.

    python benchmarks/gpus.py OUTPUT.json --gpus 1 2 --submissions 6 12 [--runs 5] [--seconds 540] [--trusted]

Each submission is lab 01's reference under its own name, with a notebook that prints that name and a largest batch of its own, since a
batch judges equal files once. For each number of GPUs a course folder of its own is graded by `course grade lab01 --workers GPUS`,
which gives every worker one GPU; one submission is graded before, so that all libraries are in memory. `--submissions` is one number
for all, or one for each; as many for each GPU make gradings of equal length. A run grades with each number of GPUs, every second run in
reversed order. `--gpus 0` grades with one worker and no GPU. The engines are those of the TensorRT that is found in this environment or
in COURSE_ENVIRONMENTS, elsewhere the course's default. Without the sandbox nothing is graded, unless `--trusted` says to do without.

A grading that is not through when `--seconds` are over is ended; the script then goes on where it was if it is started again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import nbformat

from benchmarks.recording import Row, about, one_line, rows_of, save
from benchmarks.throughput import LAB, ROOT, course, with_another_batch
from course_lib.engines import Worker, available_backends, environments
from course_lib.grading.batch import farm
from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.integrity import signature
from course_lib.grading.judge.verdict import Verdict
from course_lib.labs import Examiner

RECIPE, LARGEST = "recipe.toml", "max = [32,"  # of the reference's profile
FULL_MARKS = sum(task.points for task in LAB.tasks)  # the written question is not answered


@dataclass(frozen=True)
class Timing:
    """One measurement of one submission, as its verdict's provenance tells it; seconds since 1970."""

    device: str
    began: float
    ended: float
    disturbed: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--submissions", type=int, nargs="+", default=[40])
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--trusted", action="store_true", help="without the sandbox")
    options = parser.parse_args()
    counts = options.submissions * len(options.gpus) if len(options.submissions) == 1 else options.submissions
    devices = farm.gpus()
    if len(counts) != len(options.gpus) or max(options.gpus) > len(devices):
        parser.error(f"need one --submissions or one for each of --gpus, and so many GPUs; here are {len(devices)}")
    ends = time.monotonic() + options.seconds
    target, versions = found_tensorrt()
    known, rows = about(versions), rows_of(options.output)
    grader = Grader(target, options.trusted, ends)
    grader.warm_up(devices)
    pairs = list(zip(options.gpus, counts, strict=True))
    for run in range(options.runs):
        for gpus, submissions in pairs[:: 1 if run % 2 == 0 else -1]:
            if (run, gpus) in [(row["run"], row["gpus"]) for row in rows]:
                continue
            try:
                row = grader.row(devices[:gpus], submissions)
            except Exception as error:  # one row's failure is its own
                row = {"failed": one_line(error)}
            rows = with_ratios([*rows, {"run": run, "gpus": gpus, "submissions": submissions, **row}])
            print(json.dumps(rows[-1]), flush=True)
            save(options.output, known, rows, target=target or "the course's default")


def found_tensorrt() -> tuple[str | None, dict[str, str]]:
    """The first TensorRT that runs here, as ``tensorrt@ENVIRONMENT``, with versions; None and this environment's backends elsewhere."""
    for name, environment in environments().items():
        with Worker(environment) as worker:
            for one in worker.backends():
                if one["name"] == "tensorrt" and not one["no_run"]:
                    return f"tensorrt@{name}", {"tensorrt": one["version"]}
    return None, {one.name: one.version for one in available_backends() if one.version}


@dataclass(frozen=True)
class Grader:
    """Runs `course grade`, until a moment of `time.monotonic` at most."""

    target: str | None
    trusted: bool
    ends: float

    def warm_up(self, devices: Sequence[str]) -> None:
        """One submission, said with its time: where this one fails, nothing after it could be measured.

        Raises:
            RuntimeError: it did not get all points, and why.
        """
        with tempfile.TemporaryDirectory() as folder:
            started = time.monotonic()
            [grade] = self._graded(self._room(Path(folder), 1), devices[:1])
            print(f"warm-up: {grade['score']} of {FULL_MARKS} in {time.monotonic() - started:.0f} s", flush=True)
            if grade["score"] != FULL_MARKS:
                raise RuntimeError(grade["error"] or "the reference did not get all points")

    def row(self, devices: Sequence[str], submissions: int) -> Row:
        """Grade so many submissions on these GPUs; what came of it and how long it took."""
        with tempfile.TemporaryDirectory() as folder:
            room = self._room(Path(folder), submissions)
            started = time.monotonic()
            grades = self._graded(room, devices)
            seconds = time.monotonic() - started
            return {
                "workers": max(1, len(devices)),
                "seconds": round(seconds, 1),
                "submissions_per_minute": round(60 * submissions / seconds, 3),
                "full_marks": sum(grade["score"] == FULL_MARKS for grade in grades),
                "lost": [_lost(room, grade) for grade in grades if grade["score"] != FULL_MARKS],
                "errors": sorted({grade["error"] for grade in grades if grade["error"]}),
                **use_of_devices(timings(room)),
            }

    def _room(self, root: Path, submissions: int) -> Classroom:
        room = Classroom(course(root))
        shutil.copyfile(ROOT / "nbgrader_config.py", root / "nbgrader_config.py")
        files = root / "reference"
        files.mkdir()
        LAB.write_reference(files, opset=Examiner(builder=self.target).opset if self.target else None)
        recipe = files / RECIPE
        text = recipe.read_text(encoding="utf-8")
        for index in range(submissions):
            name = f"student{index:02}"
            recipe.write_text(with_another_batch(text, LARGEST, index), encoding="utf-8")
            notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(f"print({name!r})")])
            nbformat.write(notebook, files / f"{LAB.name}.ipynb")
            room.submit(name, LAB, files)
        return room

    def _graded(self, room: Classroom, devices: Sequence[str]) -> list[dict[str, Any]]:
        command = [
            sys.executable,
            "-m",
            "course_lib.cli.app",
            "grade",
            LAB.name,
            "--json",
            "--workers",
            str(max(1, len(devices))),
        ]
        command += ["--builder", self.target, "--runner", self.target] if self.target else []
        command += ["--trusted"] if self.trusted else []
        seen = {"COURSE_ROOT": str(room.root), "CUDA_VISIBLE_DEVICES": ",".join(devices), "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            command,
            env={**os.environ, **seen},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=max(1.0, self.ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            done = len(list((room.folder / "reports").glob(f"*/{LAB.name}.json")))
            _end(process)
            said = (process.communicate()[1].strip().splitlines() or ["nothing"])[-1]
            raise TimeoutError(f"the time was up after {done} submissions; it last said: {said}") from None
        finally:
            _end(process)
        if not out.startswith("{"):
            raise RuntimeError((err.strip().splitlines() or ["course grade said nothing"])[-1])
        grades: list[dict[str, Any]] = json.loads(out)["grades"]
        return grades


def _lost(room: Classroom, grade: Mapping[str, Any]) -> dict[str, str]:
    """Why a submission has no full marks: what its verdict says of each such task, but for the written question."""
    file = room.folder / "reports" / grade["student"] / f"{LAB.name}.json"
    if not file.exists():
        return {}
    outcomes = Verdict.from_json(json.loads(file.read_bytes())).outcomes
    return {one.task.id: one.message[:300] for one in outcomes if one.points != one.task.points}


def _end(process: subprocess.Popen[str]) -> None:
    """And all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# ---- what the verdicts say


def timings(room: Classroom) -> list[Timing]:
    """Every measurement of every submission; each verdict must be as the classroom signed it."""
    key = signature.public_key(signature.signing_key(room.folder))
    found = []
    for path in sorted((room.folder / "reports").glob(f"*/{LAB.name}.json")):
        verdict = json.loads(path.read_bytes())
        signature.check(verdict, key)
        known = verdict["provenance"]
        for record in known.get("health", []):
            gpu = record["gpu"][0]
            device = gpu["uuid"] if gpu else known["device"]
            found.append(Timing(device, record["began"], record["ended"], tuple(record["disturbed"])))
    return found


def use_of_devices(found: Iterable[Timing]) -> Row:
    """Measurements and the seconds they took by device, how many overlap another one on their device, and what disturbed them."""
    by_device: dict[str, list[Timing]] = {}
    for one in sorted(found, key=lambda timing: timing.began):
        by_device.setdefault(one.device, []).append(one)
    return {
        "devices": {
            device: {"measurements": len(each), "seconds": round(sum(one.ended - one.began for one in each), 1)}
            for device, each in by_device.items()
        },
        "overlapping": sum(_overlapping(each) for each in by_device.values()),
        "disturbed": sorted({reason for each in by_device.values() for one in each for reason in one.disturbed}),
    }


def _overlapping(in_order: Sequence[Timing]) -> int:
    """Measurements that began before an earlier one had ended."""
    latest, count = 0.0, 0
    for one in in_order:
        count += one.began < latest
        latest = max(latest, one.ended)
    return count


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Each row with its rate over that of one GPU in the same run, where there is such a row."""
    one = {row["run"]: row["submissions_per_minute"] for row in rows if row["gpus"] == 1 and "failed" not in row}
    return [
        {**row, "rate_over_one_gpu": round(row["submissions_per_minute"] / one[row["run"]], 3)}
        if row["run"] in one and "failed" not in row
        else row
        for row in rows
    ]


if __name__ == "__main__":
    main()
