"""What lab 03 gives: networks and recipes to build, what changed in six nights, and engines that were built several times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.labs.framework import submission
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    import onnx

ANSWERS = "answers.json"
BUILDER = "tensorrt_rtx"  # it builds without a GPU, and the tables of one version are the same on every machine
IMAGES = (8, 3, 32, 32)  # of the network whose widths are chosen
WIDTHS = ("stem", "block", "wide", "features", "hidden", "classes")
SEQUENCES, LENGTHS = (1, 256), (16, 64)  # batches, and tokens of a sequence, that the encoder's engine accepts
NIGHTS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
SLOWER = 1.05  # than engines that were built alone: the service does not accept more
_TARGETS = ("sm89",)
_CHANGES = ("level", "note", "retrained", "opt", "largest batch", "class")
_NETWORK = """
<ir_version: 8, opset_import: ["": 17]>
classifier (float[{batch}, 3, 32, 32] image) => (float[{batch}, {classes}] scores) {{
  half = Cast<to = 10>(image)
  stem = Conv<pads = [1, 1, 1, 1]>(half, w_stem)
  x = Relu(stem)
  first = Conv<pads = [1, 1, 1, 1]>(x, w_first)
  inner = Relu(first)
  second = Conv<pads = [1, 1, 1, 1]>(inner, w_second)
  sum = Add(second, x)
  block = Relu(sum)
  wide = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(block, w_wide)
  wider = Relu(wide)
  features = Conv(wider, w_features)
  found = Relu(features)
  mean = ReduceMean<axes = [2, 3], keepdims = 0>(found)
  hidden = Gemm(mean, w_hidden)
  active = Relu(hidden)
  classes = Gemm(active, w_classes)
  scores = Cast<to = 1>(classes)
}}"""


@dataclass(frozen=True)
class Night:
    """The model and the recipe of yesterday's build, and those of tonight's."""

    before: tuple[onnx.ModelProto, Recipe]
    after: tuple[onnx.ModelProto, Recipe]


@dataclass(frozen=True)
class Instance:
    """The data of one learner.

    Attributes:
        widths: channels of the trained network, by layer.
        length: tokens of a usual sequence.
        changes: what changed in each night.
        opt: the batch for which the engine is tuned after a change of it.
        batch: at which repeated builds are compared.
    """

    widths: Mapping[str, int]
    length: int
    changes: Mapping[str, str]
    opt: int
    batch: int

    def nights(self) -> dict[str, Night]:
        """The two builds of each night: model and recipe of an image classifier in FP16."""
        widths = {name: width + width % 2 for name, width in self.widths.items()}
        usual, recipe = network(widths, "N"), network_recipe(largest=64)
        changed = {
            "level": (usual, recipe.model_copy(update={"optimization_level": 5})),
            "note": (_with_note(usual), recipe),
            "retrained": (_retrained(usual), recipe),
            "opt": (usual, network_recipe(opt=self.opt, largest=64)),
            "largest batch": (usual, network_recipe(largest=32)),
            "class": (network({**widths, "classes": widths["classes"] + 1}, "N"), recipe),
        }
        return {night: Night((usual, recipe), changed[change]) for night, change in self.changes.items()}

    def repeated_builds(self) -> dict[str, dict[str, Any]]:
        """Engines of lab 01's network that were built several times on one H100, by condition; "alone" is the first one.

        Each has ``us``, the time of each engine at `batch` on the quiet machine, ``seconds`` of a build, and ``full``, whether other
        programs used all cores during the builds.
        """
        from course_lib.benchmark import recorded

        rows = [row for row in recorded("busy_builds_h100").rows if row["gpus"] == 1 and row["batch"] == self.batch]
        return {
            row["condition"]: {
                "us": row["replays_us"],
                "seconds": row["seconds_per_build"],
                "full": row["busy_loops"] >= row["cores"],
            }
            for row in rows
        }


def drawn(learner: str) -> Instance:
    """The data of a learner, which follow from the id."""
    rng = submission.rng(learner, "lab03")
    lowest = {"stem": 48, "block": 48, "wide": 96, "features": 192, "hidden": 96, "classes": 900}
    odd = {name: name not in ("block", "wide") or bool(rng.integers(2)) for name in WIDTHS}
    return Instance(
        widths={name: low + 2 * int(rng.integers(low // 6)) + odd[name] for name, low in lowest.items()},
        length=int(rng.integers(LENGTHS[0] + 4, LENGTHS[1])),
        changes=dict(zip(NIGHTS, map(str, rng.permutation(_CHANGES)), strict=True)),
        opt=int(rng.choice((2, 4, 16, 32))),
        batch=int(rng.choice((1, 2, 4))),
    )


def save(section: str, answer: Any) -> None:
    """Write one answer into `answers.json`. The others stay."""
    answers = {**json.loads(Path(ANSWERS).read_text(encoding="utf-8")), section: answer}
    submission.write(ANSWERS, answers.pop(submission.KEY), **answers)


def network(widths: Mapping[str, int], batch: int | str = IMAGES[0]) -> onnx.ModelProto:
    """A classifier of images with these numbers of channels, in FP16."""
    import onnx

    stem, block, wide, features, hidden, classes = (widths[name] for name in WIDTHS)
    shapes = {
        **{"stem": (stem, IMAGES[1], 3, 3), "first": (block, stem, 3, 3), "second": (stem, block, 3, 3)},
        **{"wide": (wide, stem, 3, 3), "features": (features, wide, 1, 1)},
        **{"hidden": (features, hidden), "classes": (hidden, classes)},
    }
    model = onnx.parser.parse_model(_NETWORK.format(batch=batch, classes=classes))
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        weights = rng.normal(0, 0.05, shape).astype(np.float16)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, f"w_{name}"))
    for node in model.graph.node:
        node.name = f"/{node.output[0]}/{node.op_type}"
    return model


def network_recipe(opt: int = IMAGES[0], largest: int = IMAGES[0]) -> Recipe:
    """A recipe for `network`, tuned for a batch; the defaults are for a fixed batch."""
    shapes = {name: (batch, *IMAGES[1:]) for name, batch in (("min", 1), ("opt", opt), ("max", largest))}
    return Recipe(precision="fp16", targets=_TARGETS, profiles=[Profile(image=shapes)] if largest > IMAGES[0] else ())


@cache
def encoder() -> onnx.ModelProto:
    """The text encoder in FP16. Its input ``tokens`` has the shape (batch, tokens of a sequence, 32)."""
    from course_lib.models import encoder as module
    from course_lib.models import export_onnx

    return export_onnx(module(), dtype="fp16", opset=17)


def encoder_recipe(batch: int, length: int) -> Recipe:
    """A recipe for `encoder` that accepts every batch and length of the service, and is tuned for these."""
    (fewest, most), (shortest, longest) = SEQUENCES, LENGTHS
    tokens = {"min": (fewest, shortest, 32), "opt": (batch, length, 32), "max": (most, longest, 32)}
    return Recipe(precision="fp16", targets=_TARGETS, profiles=[Profile(tokens=tokens)])


def cache_build(recipe: Recipe) -> tuple[onnx.ModelProto, Recipe]:
    """What fills TensorRT's timing cache on a GPU: lab 01's convolutions, and the settings of another recipe.

    On an H200, TensorRT 8.6 built the encoder from a cache in 0.95 and 1.04 of the time: it compiles a transformer as a whole. On an H100,
    it built this classifier in 0.19 of the time.
    """
    from course_lib.models import classifier, export_onnx

    shapes = {bound: (batch, 1, 32, 32) for bound, batch in (("min", 1), ("opt", 8), ("max", 32))}
    settings = {"optimization_level": recipe.optimization_level, "flags": recipe.flags}
    return export_onnx(classifier("wide"), opset=17), Recipe(profiles=[Profile(image=shapes)], **settings)


def tactics_ms() -> np.ndarray:
    """The times of the layers of ResNet-50 in FP16 on an H200, in milliseconds, without reformats."""
    from course_lib.benchmark import recorded

    rows = [row for row in recorded("tactics_h200").rows if row["precision"] == "fp16"]
    return np.array([row["ms"] for row in rows if not row["layer"].startswith("Reformatting")])


def _with_note(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph from a newer exporter, which writes its version into the file."""
    other = type(model).FromString(model.SerializeToString())
    other.producer_version, other.doc_string = "2.14.1", "nightly export"
    return other


def _retrained(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same graph with other weights in its convolutions."""
    from onnx import numpy_helper

    other = type(model).FromString(model.SerializeToString())
    for tensor in other.graph.initializer:
        weights = numpy_helper.to_array(tensor)
        if weights.ndim == 4:
            tensor.CopyFrom(numpy_helper.from_array((1.01 * weights).astype(weights.dtype), tensor.name))
    return other
