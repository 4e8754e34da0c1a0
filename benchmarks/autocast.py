"""NVIDIA's AutoCast on a network that overflows in FP16 and on the encoder, on a CPU, beside the casts of lecture 5.

    python benchmarks/autocast.py FILE.json

Needs the extra ``qat`` and what `modelopt.onnx` imports without a GPU: onnxslim, lief and nvidia-ml-py. Tensors are rounded to FP16 by
`emulate`, as in lecture 5, and the kernels are those of TensorRT for RTX.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
import onnxruntime
import torch

from benchmarks.recording import Row, about, installed, save
from course_lib.benchmark import sqnr_db
from course_lib.engines import build
from course_lib.models import Signature, classifier, digits, encoder, export_onnx
from course_lib.precision import cast, emulate
from course_lib.recipe import Profile, Recipe
from course_lib.teaching.modelopt_onnx import autocast, in_fp32

KEPT = ["/Mul", "/ReduceMean_1", "/Add", "/Sqrt"]  # the keep list of lecture 5
COUNT = 64


class Scanner(torch.nn.Module):
    """The network of lecture 5: raw pixels of 12 bits are normalized inside the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = classifier("small")

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """The logits of (N, 1, 32, 32) pixels from 0 to 4095."""
        centered = pixels - pixels.mean((2, 3), keepdim=True)
        variance = (centered * centered).mean((2, 3), keepdim=True)
        logits: torch.Tensor = self.classifier(0.37 * centered / torch.sqrt(variance + 1e-5) + 0.3)
        return logits


def main() -> None:
    """One row for each network and way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    known = about(installed("nvidia-modelopt", "onnx", "onnxruntime", "torch", "tensorrt-rtx-cu13"))
    rows: list[Row] = []
    for row in measured():
        rows.append(row)
        print(row, flush=True)
        save(options.output, known, rows)


def measured() -> Iterator[Row]:
    """Both networks; AutoCast without data, with data, and with the limit of FP16 in place of its own."""
    test = digits("test")
    signature = Signature(inputs={"pixels": ("batch", 1, 32, 32)}, outputs=("logits",))
    pixels = np.round(4095 * test.images[:COUNT]).astype(np.float32)
    square = Profile(pixels={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)})
    yield from _ways("scanner", export_onnx(Scanner().eval(), signature=signature), {"pixels": pixels}, square, KEPT)
    tokens = Profile(tokens={"min": (1, 16, 32), "opt": (8, 32, 32), "max": (32, 48, 32)})
    yield from _ways("encoder", export_onnx(encoder()), {"tokens": test.tokens()[:COUNT]}, tokens, [])


def _ways(name: str, model: onnx.ModelProto, feeds: dict[str, np.ndarray], profile: Profile, keep: list[str]) -> Iterator[Row]:
    exact = _run(model, feeds)
    for way, made in {
        "AutoCast without data": lambda: autocast(model),
        f"AutoCast, {COUNT} inputs": lambda: autocast(model, feeds),
        f"AutoCast, {COUNT} inputs, data_max 65504": lambda: autocast(model, feeds, data_max=65504),
        "cast with a keep list": lambda: cast(model, "fp16", keep=keep),
    }.items():
        half = made()
        plan = build(half, Recipe(precision="fp16", profiles=[profile], targets=["sm89"]), backend="tensorrt_rtx")
        yield {
            "network": name,
            "way": way,
            "in_fp32": in_fp32(half),
            "casts": sum(node.op_type == "Cast" for node in half.graph.node),
            "sqnr_db": round(sqnr_db(exact, _run(emulate(half), feeds)), 1),
            "kernels": len(plan.layers.kernels),
            "fused_attentions": sum(kernel.name.startswith("_gemm_mha") for kernel in plan.layers.kernels),
        }


def _run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    logits: np.ndarray = session.run(None, feeds)[0]
    return logits


if __name__ == "__main__":
    main()
