"""ModelOpt on lecture 7's networks, on a CPU: accuracy after PTQ and after QAT, and the kernels of the engine.

    python benchmarks/qat_digits.py FILE.json

Needs the extra ``qat``. The uneven network computes the same function as the even one, and its channels differ in size.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from benchmarks.recording import Row, about, installed, save
from course_lib.engines import build
from course_lib.models import classifier, digits, export_onnx
from course_lib.precision import export_qat_onnx, quantize_aware, train
from course_lib.recipe import Profile, Recipe
from course_lib.teaching.qat.by_hand import fold_norms
from course_lib.teaching.qat.figures import uneven

SPREAD, CALIBRATION, EPOCHS, RATE = 16, 500, 4, 5e-4


def main() -> None:
    """Three rows for each network: float, PTQ and QAT."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    known = about(installed("nvidia-modelopt", "torch", "onnx", "tensorrt-rtx-cu13"))
    rows: list[Row] = []
    for row in measured():
        rows.append(row)
        print(row, flush=True)
        save(options.output, known, rows)


def measured() -> Iterator[Row]:
    """What `mtq.quantize` makes of the two networks, and what training adds."""
    data, test = digits("train"), digits("test")
    images, labels = torch.from_numpy(data.images), torch.from_numpy(data.labels)

    def accuracy(model: torch.nn.Module) -> float:
        with torch.inference_mode():
            answers = model(torch.from_numpy(test.images)).argmax(1)
        return round(float((answers == torch.from_numpy(test.labels)).float().mean()), 4)

    even = fold_norms(classifier("small"))
    pairs = {f"block{n}.conv1": f"block{n}.conv2" for n in (1, 2, 3)}
    for name, network in (("even", even), ("uneven", uneven(even, pairs, spread=SPREAD))):
        yield {"network": name, "step": "float", "accuracy": accuracy(network)}
        model = quantize_aware(network, [images[:CALIBRATION]])
        yield {"network": name, "step": "PTQ", "accuracy": accuracy(model), "int8_kernels": _int8_kernels(model)}
        start = time.perf_counter()
        batches = [(part, target) for part, target in zip(images.split(64), labels.split(64), strict=True)]
        train(model, batches, epochs=EPOCHS, learning_rate=RATE)
        seconds = round(time.perf_counter() - start, 1)
        yield {
            "network": name,
            "step": "QAT",
            "accuracy": accuracy(model),
            "int8_kernels": _int8_kernels(model),
            "epochs": EPOCHS,
            "learning_rate": RATE,
            "seconds": seconds,
        }


def _int8_kernels(model: torch.nn.Module) -> int:
    sizes = Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)})
    recipe = Recipe(precision="int8", profiles=[sizes], targets=["sm89"])
    export = partial(export_onnx, signature=classifier("small").signature())
    layers = build(export_qat_onnx(model, export), recipe, backend="tensorrt_rtx").layers
    return sum("Int8" in {tensor.dtype for tensor in kernel.weights} for kernel in layers.kernels)


if __name__ == "__main__":
    main()
