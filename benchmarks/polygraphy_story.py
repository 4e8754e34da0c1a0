"""Polygraphy's commands that need TensorRT, recorded on a GPU: one convolution overflows in FP16, and two searches find it.

    SITE/run python benchmarks/polygraphy_story.py --output FILE.json [--folder DIR] [--seconds 240] [--steps "an engine" ...]

It runs in an interpreter with TensorRT, onnxruntime, onnx, onnx-graphsurgeon, polygraphy and numpy, from the root. Without TensorRT, the
commands that need it fail, and the record says so. Steps that the record has are not run again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.ort_tensorrt_parts.models import with_determinant
from benchmarks.recording import about, installed, rows_of, save
from course_lib.teaching.deployment.polygraphy_tool import Polygraphy, without_command

DISTRIBUTIONS = ("tensorrt", "onnxruntime", "onnxruntime-gpu", "onnx", "onnx-graphsurgeon", "polygraphy", "numpy")
CONVOLUTIONS, LOUD = 7, 4
LOUDER = 6e4  # the loud convolution's weights are this much larger, and those of the next one this much smaller
CHANNELS, SIZE, BATCH = 32, 32, 16
WIDE = "--atol 0.05 --rtol 0.05"  # far above FP16's rounding in this network, far below an overflow
CACHE = "--load-timing-cache tactics.cache --save-timing-cache tactics.cache"


@dataclass(frozen=True)
class Step:
    """One command.

    Attributes:
        name: in the record.
        command: without ``polygraphy``.
        show: which lines of its output are recorded, a regular expression.
    """

    name: str
    command: str
    show: str = "PASSED|FAILED|(?i:error)"


_CHECK = f"--check polygraphy run polygraphy_debug.{{}} --trt --load-inputs {{}} --load-outputs {{}} {WIDE}"
STEPS = (
    Step("right answers", "run loud.onnx --onnxrt --save-inputs input.json --save-outputs right.json", "PASSED|FAILED"),
    Step(
        "every tensor",
        "run loud.onnx --onnxrt --load-inputs input.json --onnx-outputs '*' --save-outputs tensors.json",
        "PASSED|FAILED",
    ),
    Step("one file for all parts", "data merge input.json tensors.json -o feed.json", "Saving"),
    Step("FP32", f"run loud.onnx --trt --onnxrt --load-inputs input.json {WIDE} {CACHE}"),
    Step("FP16", f"run loud.onnx --trt --fp16 --onnxrt --load-inputs input.json --validate {WIDE} {CACHE}"),
    Step(
        "FP16, every tensor",
        f"run loud.onnx --trt --fp16 --onnxrt --trt-outputs '*' --onnx-outputs '*' --load-inputs input.json {WIDE} {CACHE}",
        "PASSED|FAILED|Comparing Output",
    ),
    Step(
        "which layers need FP32",
        f"debug precision loud.onnx --fp16 -p float32 --mode bisect --precision-constraints obey {CACHE} "
        + _CHECK.format("engine", "input.json", "right.json"),
        "precision|Marking|ED . Iteration|Finished|layer",
    ),
    Step(
        "which node is at fault",
        "debug reduce loud.onnx -o small.onnx --mode linear --load-inputs feed.json "
        + _CHECK.format("onnx", "feed.json", "tensors.json")
        + f" --fp16 {CACHE}",
        "Reducing|Marking|ED . Iteration",
    ),
    Step("what is left", "inspect model small.onnx --show layers", r"Node \d"),
    Step("an engine", f"convert loud.onnx --fp16 -o loud.plan {CACHE}", "(?i:error)|Finished|Saving"),
    Step("the engine's layers", "inspect model loud.plan --show layers", "Layer|Profile|Engine"),
    Step("what the parser takes", "inspect capability determinant.onnx", "Det|(?i:supported)|Nodes"),
)


def main() -> None:
    """Run the steps one after the other, each recorded at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="for models and Polygraphy's files; default: a new temporary folder")
    parser.add_argument("--seconds", type=float, default=240, help="no command is begun after these")
    names = [step.name for step in STEPS]
    parser.add_argument("--steps", nargs="+", choices=names, default=names, help="default: all")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="polygraphy-"))
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(loud_network(), folder / "loud.onnx")
    onnx.save(with_determinant(), folder / "determinant.onnx")
    (folder / "tactics.cache").touch()
    versions = installed(*DISTRIBUTIONS) | {"python": sys.version.split()[0]}
    polygraphy, known, rows = Polygraphy(folder, time_limit_s=options.seconds), about(versions), rows_of(options.output)
    started = time.monotonic()
    for step in STEPS:
        if step.name not in options.steps or step.name in [row["step"] for row in rows]:
            continue
        if time.monotonic() - started > options.seconds:
            break
        began = time.monotonic()
        status, said = polygraphy.run(step.command)
        lines = [without_command(line)[:200] for line in said.splitlines() if re.search(step.show, line)]
        if status:  # the error is at the end
            lines += [line[:200] for line in said.splitlines()[-3:] if line[:200] not in lines]
        rows.append(
            {
                "step": step.name,
                "command": step.command,
                "status": status,
                "seconds": round(time.monotonic() - began, 1),
                "lines": lines,
            }
        )
        print(step.name, status, rows[-1]["seconds"], *lines[-8:], sep="\n    ", flush=True)
        save(options.output, known, rows)


def loud_network(seed: int = 0) -> onnx.ModelProto:
    """Convolutions and ReLUs. In FP32 the loud one changes nothing, since the next one's weights are smaller by the same factor."""
    rng, nodes, weights = np.random.default_rng(seed), [], []
    tensor = "image"
    for number in range(1, CONVOLUTIONS + 1):
        scale = {LOUD: LOUDER, LOUD + 1: 1 / LOUDER}.get(number, 1.0)
        kernel = rng.standard_normal((CHANNELS, CHANNELS, 3, 3)) * np.sqrt(2 / (CHANNELS * 9)) * scale
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"weights{number}"))
        nodes.append(helper.make_node("Conv", [tensor, f"weights{number}"], [f"c{number}"], f"conv{number}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"))
        tensor = f"r{number}"
    shape = [BATCH, CHANNELS, SIZE, SIZE]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("image", tensor)]
    graph = helper.make_graph(nodes, "loud", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    main()
