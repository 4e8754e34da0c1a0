"""The course's loop on this machine's own engines: outputs against PyTorch, speed over eager, and lab 01 graded.

    python benchmarks/first_engine.py [--target tensorrt@trt8] [--output FILE.json]

Eager and engine run in two workers (two interpreters where the target names another environment) and are timed interleaved;
ratios divide by eager in FP32. On a GPU each call is timed between device events, copies not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.machine import machine
from benchmarks.yardsticks import resnet50
from course_lib import labs
from course_lib.benchmark import compare
from course_lib.engines import ModelSource, Worker, build, default_runner, split_target
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner
from course_lib.models import classifier, export_onnx
from course_lib.recipe import Profile, Recipe

BATCHES = (1, 3, 32)
NETWORKS: dict[str, tuple[Any, ModelSource, tuple[int, ...]]] = {
    "digits small": (lambda: classifier("small"), ModelSource("course_lib.models:classifier", ("small",)), (1, 32, 32)),
    "digits wide": (lambda: classifier("wide"), ModelSource("course_lib.models:classifier", ("wide",)), (1, 32, 32)),
    "ResNet-50": (resnet50, ModelSource("benchmarks.yardsticks:resnet50"), (3, 224, 224)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default=default_runner())
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--seconds", type=float, default=6, help="longest measuring of one row")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = [row for name in options.networks for row in network_rows(name, options.target, options.seconds)]
    record = {**machine(options.target), "rows": rows, "lab01": lab01(options.target)}
    print(f"lab 01's reference: {record['lab01']['score']:g} of {record['lab01']['max_score']:g}")
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n")


def network_rows(name: str, target: str, seconds: float) -> list[dict[str, Any]]:
    """One row per precision and batch: relative error against eager, median latencies, speedups with their intervals."""
    make, source, shape = NETWORKS[name]
    opset = Examiner(builder=target).opset
    profile = Profile(image={"min": (1, *shape), "opt": (8, *shape), "max": (32, *shape)})
    rng = np.random.default_rng()
    rows = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        eager = stack.enter_context(Worker())
        eager.load(source)
        engines: dict[str, Worker] = {}
        builds: dict[str, Any] = {}
        for precision in ("fp32", "fp16"):
            path = Path(folder, f"{precision}.onnx")
            # a weakly typed builder takes the FP32 graph and the permission, a strongly typed one a half-precision graph
            export_onnx(make(), path, opset=opset, dtype="fp32" if opset else precision)
            plan = build(path, Recipe(precision=precision, profiles=[profile]), backend=target)
            engines[precision] = stack.enter_context(Worker(split_target(target)[1]))
            engines[precision].load(plan)
            builds[precision] = {"build_s": round(plan.build_seconds, 2), "plan_mb": round(len(plan.data) / 1e6, 2)}
            builds[precision] |= {"nodes": len(plan.layers.operators), "kernels": len(plan.layers.kernels)}
            builds[precision] |= {"kernel_dtypes": dict(plan.layers.dtype_counts())}
        for batch in BATCHES:
            draw = lambda n=batch: {"image": rng.random((n, *shape), dtype=np.float32)}  # noqa: E731
            feeds = draw()
            want = eager.infer(feeds)["logits"]
            error = {p: _relative(want, worker.infer(feeds)["logits"]) for p, worker in engines.items()}
            measured = compare({"eager": eager, **engines}, draw, baseline="eager", time_limit_s=seconds)
            for precision in engines:
                row = {"network": name, "precision": precision, "batch": batch, "relative_error": error[precision]}
                row |= {"speedup": measured.to_json()["speedup"][precision], "rounds": measured.to_json()["rounds"]}
                row |= {"eager_ms": measured.measurements["eager"].median_ms, "ms": measured.measurements[precision].median_ms}
                rows.append({**row, **builds[precision]})
                print(
                    f"{name:13} {precision} batch {batch:2}: {measured.speedups[precision]} over eager fp32 "
                    f"({row['eager_ms']:.3f} -> {row['ms']:.3f} ms), relative error {error[precision]:.1e}",
                    flush=True,
                )
    return rows


def _relative(want: np.ndarray, have: np.ndarray) -> float:
    return float(np.linalg.norm(have - want) / np.linalg.norm(want))


def lab01(target: str) -> dict[str, Any]:
    """Lab 01's reference, judged on this target."""
    lab = labs.find("lab01")
    builder = target if target.startswith("tensorrt") else Examiner().builder
    examiner = Examiner(builder=builder, runner=target)
    with tempfile.TemporaryDirectory() as folder:
        lab.write_reference(Path(folder), opset=examiner.opset)
        return judge(lab, Path(folder), examiner=examiner, trusted=bool(sandbox.problem())).to_json()


if __name__ == "__main__":
    main()
