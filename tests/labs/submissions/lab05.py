"""Submissions for lab 05: calibrators that are right in another way or wrong, and models with Q/DQ pairs in other places."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import onnx

from course_lib.labs.lab05_calibration import reference
from course_lib.labs.lab05_calibration.reference import CALIBRATOR
from course_lib.models import classifier, export_onnx
from course_lib.precision import MinMaxCalibrator, activations, insert_qdq
from course_lib.recipe import Recipe

RIGHT = {
    "interpolated within the bin": """
import numpy as np
def percentile(counts, bin_width, percent):
    borders = np.arange(len(counts) + 1) * bin_width
    below = np.concatenate([[0], np.cumsum(counts)])
    last = np.flatnonzero(counts)[-1] + 2
    return np.interp(percent / 100 * counts.sum(), below[:last], borders[:last])
""",
    "a loop that adds up": """
def percentile(counts, bin_width, percent):
    seen, wanted = 0, sum(counts) * percent / 100
    for index, count in enumerate(counts):
        seen += count
        if seen >= wanted:
            return bin_width * (index + 1)
""",
}
_HEAD = "import numpy as np\ndef percentile(counts, bin_width, percent):\n"
WRONG = {  # source, tier, words of the message or the hint
    "the lower border": (CALIBRATOR.replace("(last + 1)", "last"), "none", "Off by one bin"),
    "a percentile of the counts": (_HEAD + "    return bin_width * np.percentile(counts, percent)", "none", "Count values, not bins"),
    "zeros that are not counted": (
        CALIBRATOR.replace("    inside", "    counts[0] = counts[1]\n    inside"), "partial", "many zeros"),
    "the course's own": ("from course_lib.precision import PercentileCalibrator", "none", "may import numpy"),
}  # fmt: skip


@cache
def network() -> onnx.ModelProto:
    return reference.observed()[0]


@cache
def layers() -> tuple[str, ...]:
    """Names of the ten layers with weights, in the network's order."""
    return tuple(node.name for node in network().graph.node if node.op_type in ("Conv", "Gemm"))


@cache
def good() -> dict[str, float]:
    """The reference's ranges, and some for the tensors that are shortcuts where layers stay in float."""
    spared = [activations(network(), exclude=layers()[start:stop]) for start in range(10) for stop in range(start, 11)]
    return {**dict.fromkeys(itertools.chain(*spared), 5.0), **reference.observed()[1].ranges(MinMaxCalibrator())}


def quantized(start: int = 0, stop: int = 0) -> onnx.ModelProto:
    """The network with the reference's ranges; some layers stay in float."""
    return insert_qdq(network(), good(), exclude=layers()[start:stop])


def constant_ranges(amax: float) -> onnx.ModelProto:
    """The same range for each tensor."""
    return insert_qdq(network(), dict.fromkeys(activations(network()), amax))


def smaller() -> onnx.ModelProto:
    """A cheat: the small classifier reads digits as well and is several times as fast."""
    small = export_onnx(classifier("small"), opset=17)
    return insert_qdq(small, dict.fromkeys(activations(small), 5.0))


# model, tiers of sqnr and kernels, words of the message of kernels
MODELS = {
    "five layers in float": (lambda: quantized(3, 8), ("full", "partial"), "5 of 10"),
    "every range 10,000": (lambda: constant_ranges(10_000), ("none", "none"), "SQNR of the logits"),
    "another network": (smaller, ("none", "none"), "weights of the engine"),
}


def write_files(
    folder: Path, model: onnx.ModelProto | None = None, recipe: Recipe | None = None, source: str = CALIBRATOR
) -> None:
    """The three files; what is not given is the reference's."""
    (folder / "calibrator.py").write_text(source)
    (folder / "model.onnx").write_bytes((model or quantized()).SerializeToString())
    (recipe or reference.recipe()).save(folder / "recipe.toml")
