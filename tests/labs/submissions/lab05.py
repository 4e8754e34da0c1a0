"""Submissions for lab 05: calibrators that are right in another way or wrong, and models with Q/DQ pairs in other places."""

from __future__ import annotations

import copy
import itertools
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

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
    "a share where percent were asked": (CALIBRATOR.replace("percent / 100", "percent"), "none", "Count values"),
    "zeros that are not counted": (
        CALIBRATOR.replace("    inside", "    counts[0] = counts[1]\n    inside"), "partial", "many zeros"),
    "beyond the last value at 100 percent": (CALIBRATOR.replace("inside[-1])", "inside[-1], side='right')"), "partial", "100 percent"),
    "the answers of histograms that were seen": (
        "SEEN = {1000: 1.5}\ndef percentile(counts, bin_width, percent):\n    return SEEN[int(counts.sum())]", "none", "KeyError"),
    "the course's own": ("from course_lib.precision import PercentileCalibrator", "none", "may import numpy"),
    "not a number": (_HEAD + "    return float('nan')", "none", "not a finite number"),
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


def decoys() -> onnx.ModelProto:
    """A cheat: INT8 layers that compute next to nothing prove the label, while the network itself stays float."""
    model, before = copy.deepcopy(network()), "image"
    for node in model.graph.node:
        node.output[:] = ["true_logits" if name == "logits" else name for name in node.output]
    model.graph.initializer.append(numpy_helper.from_array(np.full((1, 1, 1, 1), 1e-6, np.float32), "tiny"))
    for index in range(12):
        model.graph.node.append(helper.make_node("Conv", [before, "tiny"], [f"decoy{index}"], name=f"decoy{index}"))
        before = f"decoy{index}"
    model.graph.node.append(helper.make_node("GlobalAveragePool", [before], ["mean"], name="mean"))
    model.graph.node.append(helper.make_node("Flatten", ["mean"], ["flat"], name="flat"))
    model.graph.node.append(helper.make_node("Add", ["true_logits", "flat"], ["logits"], name="add"))
    return insert_qdq(model, {**good(), **{f"decoy{index}": 1.0 for index in range(12)}}, exclude=list(layers()))


def smaller() -> onnx.ModelProto:
    """A cheat: the small classifier reads digits as well and is several times as fast."""
    small = export_onnx(classifier("small"), opset=17)
    return insert_qdq(small, dict.fromkeys(activations(small), 5.0))


def weights_alone() -> onnx.ModelProto:
    """Only the weights are quantized."""
    changed = quantized()
    constants = {initializer.name for initializer in changed.graph.initializer}
    source = {node.output[0]: node.input[0] for node in changed.graph.node if node.op_type == "QuantizeLinear"}
    source = {result: tensor for result, tensor in source.items() if tensor not in constants}
    renamed = {node.output[0]: source[node.input[0]] for node in changed.graph.node if node.input[0] in source}
    kept = [node for node in changed.graph.node if node.output[0] not in source and node.output[0] not in renamed]
    for node in kept:
        node.input[:] = [renamed.get(name, name) for name in node.input]
    del changed.graph.node[:]
    changed.graph.node.extend(kept)
    return changed


def asymmetric() -> onnx.ModelProto:
    """One zero point is not 0."""
    model = quantized()
    (zero_point,) = (i for i in model.graph.initializer if i.name == "image/zero_point")
    zero_point.CopyFrom(numpy_helper.from_array(np.array(-128, np.int8), zero_point.name))
    return model


# model, tiers of sqnr and kernels, words of the message of kernels
MODELS = {
    "two layers in float": (lambda: quantized(0, 2), ("full", "full"), "8 of 10"),
    "five layers in float": (lambda: quantized(3, 8), ("full", "partial"), "5 of 10"),
    "six layers in float": (lambda: quantized(0, 6), ("none", "none"), "4 of 10"),
    "quantized weights alone": (weights_alone, ("none", "none"), "0 of 10"),
    "every range 10,000": (lambda: constant_ranges(10_000), ("none", "none"), "fresh images that it reads"),
    "float with INT8 decoys": (decoys, ("none", "none"), "12 of 22"),
    "another network": (smaller, ("none", "none"), "weights of the engine"),
    "an asymmetric zero point": (asymmetric, ("none", "none"), "zero point"),
}


def write_files(
    folder: Path, model: onnx.ModelProto | None = None, recipe: Recipe | None = None, source: str = CALIBRATOR
) -> None:
    """The three files; what is not given is the reference's."""
    (folder / "calibrator.py").write_text(source)
    (folder / "model.onnx").write_bytes((model or quantized()).SerializeToString())
    (recipe or reference.recipe()).save(folder / "recipe.toml")
