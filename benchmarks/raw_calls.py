"""Code that learners write against the course's stand-in, unchanged on a real TensorRT 8.6 with pycuda.

    python benchmarks/raw_calls.py --output FILE.json [--target tensorrt@trt8] [--sections lab09 exercises lab03 lab06] [--loops FILE ...]

Each section runs in its own process of the target's interpreter, which needs TensorRT, pycuda and numpy. This interpreter trains and
exports the networks, computes the expected answers with ONNX Runtime, and looks up every TensorRT call in the conformance table. A row
for each piece of code: ``calls``, those ``missing`` in TensorRT 8.6, whether it ``ran`` to its end, and whether its result is ``right``.
The record also names the exercises and files that make no TensorRT call. ``--loops`` adds serving loops to lab 09's reference.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.raw_calls_parts import material
from benchmarks.recording import Row, about, save
from course_lib.engines import split_target

SECTIONS = ("lab09", "exercises", "lab03", "lab06")
_CHILD = Path(__file__).with_name("raw_calls_parts") / "child.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--target", default="tensorrt@trt8")
    parser.add_argument("--sections", nargs="+", default=SECTIONS, choices=SECTIONS)
    parser.add_argument("--loops", nargs="+", type=Path, default=())
    parser.add_argument(
        "--size", default="full", choices=material.SIZES, help="small: no figures, to see whether all of it works"
    )
    parser.add_argument("--folder", type=Path, help="for all files; default: a new temporary folder")
    parser.add_argument("--seconds", type=float, default=300, help="no section runs longer than what is left of these")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="raw-calls-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + options.seconds
    code = material.write(folder, options.sections, options.loops, options.size)
    calls = {name: material.calls(text) for name, text in code.items()}
    without = [name for name, found in calls.items() if not found["calls"]]
    rows: list[Row] = []
    versions = folder / "versions.json"
    versions.unlink(missing_ok=True)  # of an earlier run
    for section in options.sections:
        for row in run(folder, section, options.target, ends):
            rows.append({**row, **calls.get(row["code"], {})})
            print(json.dumps(rows[-1]), flush=True)
        known = about(json.loads(versions.read_text()) if versions.exists() else {})
        save(options.output, known, rows, no_tensorrt_calls=without)


def run(folder: Path, section: str, target: str, ends: float) -> list[Row]:
    """The rows of a section, and one more if its process did not end well. What it printed is in SECTION.log."""
    command = [*split_target(target)[1].command, str(_CHILD), str(folder), section]
    environment = {**os.environ, "PYTHONPATH": "", "CUDA_MODULE_LOADING": "LAZY"}
    failed, found = "", folder / f"{section}.rows.json"
    found.unlink(missing_ok=True)  # of an earlier run
    with (folder / f"{section}.log").open("w") as log:
        try:
            limit = max(ends - time.monotonic(), 1)
            status = subprocess.run(command, stdout=log, stderr=log, timeout=limit, check=False, env=environment).returncode
            failed = f"the process ended with {status}" if status else ""
        except subprocess.TimeoutExpired:
            failed = "not finished in time"
    rows: list[Row] = json.loads(found.read_text()) if found.exists() else []
    if failed:
        said = (folder / f"{section}.log").read_text(errors="replace").strip().splitlines()[-1:]
        rows.append({"section": section, "code": "", "ran": False, "failed": ": ".join([failed, *said])[:300]})
    return rows


if __name__ == "__main__":
    main()
