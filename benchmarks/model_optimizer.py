"""NVIDIA's ModelOpt on the small GPT, on a CPU: its PyTorch path and its ONNX path, and what each costs in bits per byte.

    python benchmarks/model_optimizer.py FILE.json

Needs the extra ``qat``, and for the ONNX path what `modelopt.onnx` imports without a GPU. The held-out text is that of lecture 16. What
a path rejects is recorded with its words. (The script is not called ``modelopt.py``, since Python would import it in place of the package.)
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
import onnxruntime
import torch

from benchmarks.recording import Row, about, one_line, save
from course_lib.models import course_text, decoder
from course_lib.teaching.low_bits.loss import cost, window_bits

HELD_OUT, CALIBRATION, WINDOW, BATCH = 8192, 8192, 256, 8
TORCH = {  # by form
    "FP8, weights and inputs": "FP8_DEFAULT_CFG",
    "INT8 with smoothing": "INT8_SMOOTHQUANT_CFG",
    "INT4 weights": "INT4_BLOCKWISE_WEIGHT_ONLY_CFG",
    "INT4 weights, AWQ": "INT4_AWQ_CFG",
    "MXFP8": "MXFP8_DEFAULT_CFG",
    "NVFP4": "NVFP4_DEFAULT_CFG",
}
ONNX = {  # by form: quantize_mode and calibration_method
    "INT4 weights": ("int4", "rtn_dq"),
    "INT4 weights, AWQ": ("int4", "awq_lite"),
    "INT8": ("int8", "entropy"),
    "FP8, weights and inputs": ("fp8", "entropy"),
}
Logits = Callable[[torch.Tensor], torch.Tensor]


def main() -> None:
    """Both paths; each form is one row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = ("nvidia-modelopt", "torch", "onnxruntime", "onnx")
    known = about({name: version(name) for name in names})
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in (*torch_path(), *onnx_path(Path(folder))):
            rows.append(row)
            print(row, flush=True)
            save(options.output, known, rows)


def torch_path() -> Iterator[Row]:
    """`mtq.quantize` inserts quantizers; the module then runs as before, with rounded values."""
    mtq = import_module("modelopt.torch.quantization")  # no types are installed with the course
    model = decoder().eval()
    baseline = window_bits(model, course_text("test")[:HELD_OUT])
    yield {"path": "PyTorch", "form": "FP32", "bits": round(float(baseline.mean()), 4)}
    tokens = torch.from_numpy(calibration())

    def seen(network: Logits) -> None:
        with torch.no_grad():
            for part in tokens.split(BATCH):
                network(part)

    for form, config in TORCH.items():

        def made(config: str = config) -> Logits:
            quantized: Logits = mtq.quantize(copy.deepcopy(model), getattr(mtq, config), forward_loop=seen)
            return quantized

        yield row_of({"path": "PyTorch", "form": form, "config": config}, baseline, made)


def onnx_path(folder: Path) -> Iterator[Row]:
    """`quantize` writes a file with Q/DQ nodes, which ONNX Runtime executes."""
    quantize = import_module("modelopt.onnx.quantization").quantize
    logging.disable(logging.INFO)
    source = folder / "gpt.onnx"
    tokens = torch.zeros(BATCH, WINDOW - 1, dtype=torch.int64)
    names: dict[str, Any] = {"input_names": ["tokens"], "output_names": ["logits"]}
    torch.onnx.export(
        decoder().eval(), (tokens,), str(source), dynamo=True, opset_version=21, external_data=False, verbose=False, **names
    )
    baseline = window_bits(session(source), course_text("test")[:HELD_OUT])
    yield {"path": "ONNX", "form": "FP32", "bits": round(float(baseline.mean()), 4), "bytes": source.stat().st_size}
    for form, (mode, method) in ONNX.items():
        target = folder / f"{mode}-{method}.onnx"

        def made(target: Path = target, mode: str = mode, method: str = method) -> Logits:
            quantize(
                str(source),
                quantize_mode=mode,
                calibration_method=method,
                calibration_data={"tokens": calibration()[:, : WINDOW - 1][: None if mode == "int4" else BATCH]},
                calibration_eps=["cpu"],
                high_precision_dtype="fp32",
                output_path=str(target),
            )
            return session(target)

        row = row_of({"path": "ONNX", "form": form, "config": f"{mode}, {method}"}, baseline, made)
        if target.exists():
            pairs = sum(node.op_type == "DequantizeLinear" for node in onnx.load(target).graph.node)
            row |= {"bytes": target.stat().st_size, "dequantize_nodes": pairs}
        yield row


def row_of(row: Row, baseline: np.ndarray, make: Callable[[], Logits]) -> Row:
    """The row with what the form costs, or with the words in which it was rejected."""
    started = time.monotonic()
    try:
        bits = window_bits(make(), course_text("test")[:HELD_OUT])
    except Exception as error:  # of any class: the package and its back ends raise many
        return {**row, "failed": one_line(error)}
    paid = {name: round(value, 5) for name, value in asdict(cost(bits.tolist(), baseline.tolist())).items()}
    return {**row, "bits": round(float(bits.mean()), 4), "cost": paid, "seconds": round(time.monotonic() - started, 1)}


def calibration() -> np.ndarray:
    """Text of the training part, int64 ``(windows, WINDOW)``."""
    return np.frombuffer(course_text("train")[:CALIBRATION], np.uint8).astype(np.int64).reshape(-1, WINDOW)


def session(path: Path) -> Logits:
    """A file in ONNX Runtime as it is written: its own fusions replace pairs around FP8 by an operator that has no FP8."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    runner = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda tokens: torch.from_numpy(runner.run(None, {"tokens": tokens.numpy()})[0])


if __name__ == "__main__":
    main()
