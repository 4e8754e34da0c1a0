"""Learners' code on the TensorRT of this interpreter: `child.py FOLDER SECTION`. Rows go to FOLDER/SECTION.rows.json, one after another.

The interpreter needs TensorRT, pycuda and numpy. The folder is from `material.write`.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from benchmarks.raw_calls_parts.answers import exercises
from benchmarks.raw_calls_parts.builds import lab03, lab06
from benchmarks.raw_calls_parts.running import FOLDER, SECTION, trt
from benchmarks.raw_calls_parts.serving import lab09
from benchmarks.recording import Row


def main() -> None:
    import pycuda

    known = {"tensorrt": trt.__version__, "pycuda": getattr(pycuda, "VERSION_TEXT", ""), "numpy": np.__version__}
    (FOLDER / "versions.json").write_text(json.dumps({**known, "python": platform.python_version()}))
    rows: list[Row] = []
    for row in {"lab09": lab09, "exercises": exercises, "lab03": lab03, "lab06": lab06}[SECTION]():
        rows.append(row)
        (FOLDER / f"{SECTION}.rows.json").write_text(json.dumps(rows))
    sys.stdout.flush()
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


if __name__ == "__main__":
    main()
