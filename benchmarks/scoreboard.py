"""The rows that the scoreboard of lectures 2 to 12 shows until a reader has measured them.

    python benchmarks/scoreboard.py FILE.json

Runs the cell of each lecture up to the line that a reader writes, and takes that line from ``solutions/scoreboard.py``. All engines
race PyTorch eager in one run.
"""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import nbformat
import numpy as np

from benchmarks.recording import Row, about, installed, save
from course_lib.benchmark import compare
from course_lib.engines import ModelSource, load
from course_lib.models import classifier, export_onnx
from course_lib.profiling.layer_tables.memory_traffic import node_traffic
from course_lib.teaching import scoreboard

ROOT = Path(__file__).resolve().parents[1]
# Lectures whose subject changes the network, and what the others learn about it.
STEPS = {2: "first plan", 3: "fusion", 5: "FP16", 6: "INT8", 7: "QAT"}
NOTES = {
    4: ("auto-tuning", "at batch 1 the last block fills {value:.0%} of 132 multiprocessors"),
    8: ("dynamic shapes", "one plan for batches 1 to 32 has {value:.0f} kernels"),
    9: ("plugins", "{value:.0%} of the bytes move in kernels without Conv or Gemm"),
    10: ("runtime", "one call copies {value:.2f} MB between host and GPU"),
    11: ("benchmarking", "the speed in row 3 is known to ± {value:.0%}"),
    12: ("profiling", "the slowest layer takes {value:.0%} of the CPU's time"),
}


def solved(lecture: int) -> Any:
    """What the reader's line of a lecture's cell gives."""
    [path] = ROOT.glob(f"lectures/{lecture:02}_*.ipynb")
    [cell] = [cell for cell in nbformat.read(path, as_version=4).cells if cell["id"] == "scoreboard-step"]
    names: dict[str, Any] = {}
    exec(cell.source.partition("\nmine = ...\n")[0], names)
    answer = runpy.run_path(str(ROOT / "solutions" / "scoreboard.py"))[f"lecture{lecture:02}"]
    return answer(**{name: names[name] for name in inspect.signature(answer).parameters})


def main() -> None:
    """One row for each lecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    plain = export_onnx(classifier("wide"), dynamic_batch=False, batch=scoreboard.BATCH, keep_batchnorm=True)
    traffic = node_traffic(plain)  # PyTorch eager: each operator is a kernel
    eager = load(ModelSource("course_lib.models:classifier", ("wide",)))
    first: Row = {"lecture": 1, "idea": "PyTorch", "kernels": len(traffic.round_trips), "mb": traffic.total_bytes / 1e6}
    rows = [first | {"speed": [1.0, 1.0, 1.0], "accuracy": scoreboard.accuracy(eager)}]
    engines: dict[int, Any] = {}
    for lecture in sorted(STEPS | NOTES):
        if lecture in STEPS:
            with patch.object(scoreboard, "speed", partial(engines.setdefault, lecture)):  # all of them race below
                rows.append({"lecture": lecture, "idea": STEPS[lecture]} | scoreboard.measured(solved(lecture)))
        else:
            idea, note = NOTES[lecture]
            rows.append({"lecture": lecture, "idea": idea, "note": note, "value": solved(lecture)})
        print(f"lecture {lecture}", flush=True)
    rng, shape = np.random.default_rng(), (scoreboard.BATCH, 1, 32, 32)
    subjects = {"eager": eager} | {str(lecture): engine for lecture, engine in engines.items()}
    race = compare(subjects, lambda: {"image": rng.random(shape, np.float32)}, baseline="eager", time_limit_s=90)
    for row in rows:
        if row["lecture"] in engines:
            speed = race.speedups[str(row["lecture"])]
            row["speed"] = [speed.median, speed.low, speed.high]
        elif row["lecture"] == 11:
            row["value"] = race.speedups["3"].half_width
    save(options.output, about(installed("onnx", "onnxruntime", "torch", "tensorrt-rtx-cu13")), rows)


if __name__ == "__main__":
    main()
