"""Another right answer of lab 16: tokens and a second input."""

from __future__ import annotations

import json
from pathlib import Path

from course_lib.engines import build, load
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.racing import decibels
from course_lib.labs.lab16_your_network.given import draw
from course_lib.models import export_onnx
from course_lib.precision import MinMaxCalibrator, activations, cast, insert_qdq, observe
from course_lib.profiling import profile_onnxruntime
from course_lib.recipe import Profile, Recipe

SOURCE = """import torch
from torch import nn

from course_lib.models import Signature


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 64)
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU())
        self.head = nn.Linear(64, 4)

    def forward(self, tokens, bias):
        return self.head(self.layers(self.table(tokens)).mean(1) + bias)

    def signature(self):
        shapes = {"tokens": ("batch", 16), "bias": ("batch", 64)}
        return Signature(inputs=shapes, outputs=("classes",), integers={"tokens": 100})


def factory():
    torch.manual_seed(3)
    return Tokens().eval()
"""
SIZES = {"min": 1, "opt": 8, "max": 16}
RECIPE = Recipe(
    profiles=(
        Profile(tokens={bound: (n, 16) for bound, n in SIZES.items()}, bias={bound: (n, 64) for bound, n in SIZES.items()}),
    )
)


def write(folder: Path) -> None:
    """All files of the submission."""
    network = learner_code.loaded(SOURCE, "network.py").factory()
    signature, shapes = network.signature(), {"tokens": (8, 16), "bias": (8, 64)}
    batches = [draw(signature.inputs, signature.integers, shapes, seed) for seed in range(4)]
    exported = export_onnx(network, opset=17)
    seen = observe(exported, batches, tensors=activations(exported), progress=False)
    models = {"fp32": exported, "fp16": cast(exported, "fp16"), "int8": insert_qdq(exported, seen.ranges(MinMaxCalibrator()))}
    kernels, answers = {}, {}
    for name, model in models.items():
        recipe = RECIPE.model_copy(update={"precision": name})
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        kernels[name] = len(build(model, recipe, backend="tensorrt_rtx").layers.kernels)
        answers[name] = load(build(model, recipe, backend="onnxruntime")).infer(batches[0])["classes"].astype(float)
    sqnr = {name: decibels(answers["fp32"], answers[name]) for name in ("fp16", "int8")}
    slowest = profile_onnxruntime(exported, batches[0])[1].heaviest(1)[0].name
    (folder / "network.py").write_text(SOURCE)
    RECIPE.save(folder / "recipe.toml")
    (folder / "findings.json").write_text(json.dumps({"kernels": kernels, "sqnr_db": sqnr, "slowest": slowest}))
