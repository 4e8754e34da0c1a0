"""Run the lectures on a GPU, and record what their cells with the tag ``gpu`` print.

    python benchmarks/gpu_cells.py --output FILE.json [--only 10 11] [--jobs 1]

It needs the course, IPython and a TensorRT in the same interpreter, and runs from the repository's root. Each lecture has its own
process, which runs all of its cells in order. A cell that fails is recorded, and the next one runs. The record is whole after each
lecture, and keeps the rows of lectures that are not run. ``jobs`` of a row is how many lectures ran at a time.

TensorRT 8.6 exists up to Python 3.10. There the newest torch that runs beside it is too old for the exporter that the course uses, so
torch's older exporter writes the ONNX files, with opset 17.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.recording import Row, about, installed, one_line, save

ROOT = Path(__file__).resolve().parent.parent
TAG = "gpu"
LONGEST_S = 300  # one lecture
MOST_PRINTED = 4000  # characters of one cell
PACKAGES = ("tensorrt", "torch", "torch-tensorrt", "onnx", "onnxruntime", "numpy", "pycuda")


def lectures() -> dict[str, Path]:
    """The notebooks with cells for a GPU, by their number of two digits."""
    notebooks = {path.name[:2]: path for path in sorted((ROOT / "lectures").glob("[0-9]*.ipynb"))}
    return {number: path for number, path in notebooks.items() if any(map(_for_gpu, _cells(path)))}


def _cells(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _for_gpu(cell: Mapping[str, Any]) -> bool:
    return TAG in cell["metadata"].get("tags", ())


def run_cells(notebook: Path) -> list[Row]:
    """Run all cells of a lecture in this process: a row for each cell with the tag, and for each other one that failed.

    Returns:
        Rows with ``cell``, ``seconds``, what it ``printed``, and ``failed`` if it did.
    """
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    _export_with_an_old_torch()
    shell, rows = InteractiveShell.instance(), []
    shell.showtraceback = lambda *_, **__: None  # the row says it
    for cell in _cells(notebook):
        started = time.perf_counter()
        with capture_output(display=False) as captured:
            result = shell.run_cell("".join(cell["source"]))
        error = result.error_before_exec or result.error_in_exec
        if error or _for_gpu(cell):
            row: Row = {"cell": cell["id"], TAG: _for_gpu(cell), "seconds": round(time.perf_counter() - started, 1)}
            row["printed"] = captured.stdout[:MOST_PRINTED]
            rows.append({**row, "failed": one_line(error)} if error else row)
    return rows


def _export_with_an_old_torch() -> None:
    """With a torch that has no exporter by ``dynamo=True``, let the course use the older one."""
    import inspect

    import torch

    from course_lib.models import export

    known = inspect.signature(old := torch.onnx.export).parameters
    if "dynamo" in known:
        return
    torch.onnx.export = lambda *arguments, **named: old(
        *arguments, **{name: value for name, value in named.items() if name in known}
    )
    export._with_dynamo = lambda module, example, signature, dynamic, opset: export._with_torchscript(
        module, example, signature, dynamic, export.FIRST_DYNAMO_OPSET - 1, keep_batchnorm=False
    )


def _in_own_process(notebook: Path) -> list[Row]:
    command = [sys.executable, __file__, "--cells-of", str(notebook)]
    environment = {**os.environ, "MPLBACKEND": "agg"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, cwd=notebook.parent, env=environment)
    except subprocess.TimeoutExpired:
        return [{"failed": f"the lecture did not end within {LONGEST_S} s"}]
    try:
        rows: list[Row] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return [{"failed": f"the process ended with status {done.returncode}: {done.stderr.strip()[-300:]}"}]
    return rows


def main() -> None:
    """Run the lectures, and save after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="the record, a JSON file")
    known_lectures = lectures()
    parser.add_argument("--only", nargs="+", choices=list(known_lectures), help="numbers of lectures")
    parser.add_argument("--jobs", type=int, default=1, help="how many lectures run at a time")
    parser.add_argument("--cells-of", type=Path, help=argparse.SUPPRESS)  # a process of a lecture
    asked = parser.parse_args()
    if asked.cells_of:
        answer = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what native code prints must not come between
        print(json.dumps(run_cells(asked.cells_of)), file=answer)
        return
    if not asked.output:
        parser.error("--output is missing: expected the path of the record")
    known = about(installed(*PACKAGES))
    chosen = {number: path for number, path in known_lectures.items() if not asked.only or number in asked.only}
    earlier = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else {"rows": []}
    rows = [row for row in earlier["rows"] if row["lecture"] not in chosen]
    if rows and any(earlier[key] != known[key] for key in ("device", "versions")):
        parser.error(f"{asked.output} is of another machine ({earlier['device']}, {earlier['versions']}): give another file")
    if rows:
        known["command"] = f"{earlier['command']}; {known['command']}"
    jobs = min(asked.jobs, len(chosen))
    with ThreadPoolExecutor(asked.jobs) as threads:
        running = {threads.submit(_in_own_process, notebook): number for number, notebook in chosen.items()}
        for done in as_completed(running):
            found = [{"lecture": running[done], "jobs": jobs, **row} for row in done.result()]
            rows = sorted(rows + found, key=lambda row: row["lecture"])
            save(asked.output, known, rows)
            print(f"lecture {running[done]}: {len(found)} rows, {sum('failed' in row for row in found)} failed", flush=True)


if __name__ == "__main__":
    main()
