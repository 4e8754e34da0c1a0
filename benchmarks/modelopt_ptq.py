"""NVIDIA's ModelOpt quantizes the small classifier's ONNX file on a CPU, compared with the pairs of lecture 6.

    python benchmarks/modelopt_ptq.py FILE.json

Needs the extra ``qat`` and what `modelopt.onnx` imports without a GPU: onnxslim, lief and nvidia-ml-py. Data, calibration images and
session options are those of lecture 6, and the kernels are those of TensorRT for RTX.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
import onnxruntime

from benchmarks.recording import Row, about, installed, save
from course_lib._util.cpu_int8 import session_options
from course_lib.benchmark import sqnr_db
from course_lib.engines import build
from course_lib.models import classifier, digits, export_onnx
from course_lib.precision import MSECalibrator, activations, insert_qdq, observe
from course_lib.recipe import Profile, Recipe
from course_lib.teaching.modelopt_onnx import quantize_int8, quantized_tensors


def main() -> None:
    """One row for each calibration method, then the lecture's own pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    network, images = export_onnx(classifier("small")), digits("train").images[:500]
    batches = [{"image": images[i : i + 50]} for i in range(0, len(images), 50)]
    ranges = observe(network, batches, tensors=activations(network), progress=False).ranges(MSECalibrator())
    ways = {f"ModelOpt, {method}": quantize_int8(network, {"image": images}, method=method) for method in ("entropy", "max")}
    ways["insert_qdq, MSE"] = insert_qdq(network, ranges)
    exact = _logits(network)
    rows = [_row(way, model, exact) for way, model in ways.items()]
    print(*rows, sep="\n")
    save(options.output, about(installed("nvidia-modelopt", "onnx", "onnxruntime", "torch", "tensorrt-rtx-cu13")), rows)


def _row(way: str, model: onnx.ModelProto, exact: np.ndarray) -> Row:
    profile = Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)})
    kernels = build(
        model, Recipe(precision="int8", profiles=[profile], targets=["sm89"]), backend="tensorrt_rtx"
    ).layers.kernels
    return {
        "way": way,
        "sqnr_db": round(sqnr_db(exact, _logits(model)), 1),
        "tensors": quantized_tensors(model),
        "kernels": len(kernels),
        "int8_kernels": sum("Int8" in {tensor.dtype for tensor in kernel.weights} for kernel in kernels),
    }


def _logits(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
    logits: np.ndarray = session.run(None, {"image": digits("test").images[:200]})[0]
    return logits


if __name__ == "__main__":
    main()
