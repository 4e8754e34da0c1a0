"""Which kernel TensorRT 8.6.0 chose for each layer of ResNet-50, and how long it took: joined from two recordings of one H200.

    python benchmarks/tactics.py

reads the engine inspector's JSON and `IProfiler`'s calls in ``course_lib/records/tensorrt86_h200`` and writes
``course_lib/records/tactics_h200.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from statistics import median
from typing import Any

from course_lib.benchmark.records import RESULTS

RECORDED = RESULTS / "tensorrt86_h200"


def rows(precision: str) -> list[dict[str, Any]]:
    """A layer a row, in the order of the engine; its time is the median of the recorded runs."""
    text = gzip.decompress((RECORDED / f"r50_{precision}.json.gz").read_bytes()).decode("utf-8", "replace")
    calls = json.loads(gzip.decompress((RECORDED / f"prof_{precision}.json.gz").read_bytes()))
    times: dict[str, list[float]] = {}
    for name, milliseconds in calls:
        times.setdefault(name, []).append(milliseconds)
    return [
        {
            "precision": precision,
            "layer": layer["Name"],
            "tactic": layer.get("TacticName") or layer["TacticValue"],
            "ms": round(median(times[layer["Name"]]), 5),
        }
        for layer in json.loads(text, strict=False)["Layers"]  # 8.6 writes control characters into strings
        if any(times.get(layer["Name"], ()))  # one that took no time launches no kernel
    ]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = {
        "date": "2026-11-21",
        "device": "NVIDIA H200",
        "driver": "580.159.04",
        "versions": {"tensorrt": "8.6.0"},
        "command": "python benchmarks/tactics.py",
        "network": "ResNet-50 (random weights, ONNX opset 17), profile batch 1-64 tuned for 64, tactic sources EDGE_MASK and JIT "
        "convolutions; tactics from the engine inspector, ms: median of three runs at batch 64 by IProfiler",
        "rows": [row for precision in ("fp32", "fp16", "int8") for row in rows(precision)],
    }
    (RESULTS / "tactics_h200.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
