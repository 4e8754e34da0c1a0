"""The reference of lab 16: a small network that counts as a learner's own. Learners do not get this file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np

from course_lib.labs.framework import learner_code
from course_lib.labs.lab16_your_network.given import FINDINGS, NETWORK, RECIPE, draw
from course_lib.recipe import Profile, Recipe

SOURCE = '''import torch
from torch import nn

from course_lib.models import Signature


class Gate(nn.Module):
    """Two convolutions, one of which gates the other."""

    def __init__(self, channels):
        super().__init__()
        self.value = nn.Conv2d(channels, channels, 3, padding=1)
        self.gate = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x + torch.relu(self.value(x)) * torch.sigmoid(self.gate(x))


class Network(nn.Module):
    def __init__(self, channels=32):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(*(Gate(channels) for _ in range(2)))
        self.head = nn.Linear(channels, 5)

    def forward(self, image):
        return self.head(self.blocks(torch.relu(self.stem(image))).mean((2, 3)))

    def signature(self):
        return Signature(inputs={"image": ("batch", 3, 32, 32)}, outputs=("scores",))


def factory():
    torch.manual_seed(16)
    return Network().eval()
'''
RANGE = Recipe(profiles=(Profile(image={"min": (1, 3, 32, 32), "opt": (4, 3, 32, 32), "max": (8, 3, 32, 32)}),))


def write(folder: Path) -> None:
    """All files."""
    for name, content in _files().items():
        (folder / name).write_bytes(content)


@cache
def _files() -> dict[str, bytes]:
    from course_lib.engines import build, load
    from course_lib.labs.framework.racing import decibels
    from course_lib.models import export_onnx
    from course_lib.precision import MinMaxCalibrator, activations, cast, insert_qdq, observe
    from course_lib.profiling import profile_onnxruntime

    network = learner_code.loaded(SOURCE, NETWORK).factory()
    signature = network.signature()
    exported = export_onnx(network, opset=17)
    seeds = range(4)
    batches = [draw(signature.inputs, {}, {"image": (8, 3, 32, 32)}, seed) for seed in seeds]
    seen = observe(exported, batches, tensors=activations(exported), progress=False)
    models = {"fp32": exported, "fp16": cast(exported, "fp16"), "int8": insert_qdq(exported, seen.ranges(MinMaxCalibrator()))}
    files = {NETWORK: SOURCE.encode(), RECIPE: RANGE.dumps().encode()}
    files |= {f"{name}.onnx": model.SerializeToString() for name, model in models.items()}
    recipes = {name: RANGE.model_copy(update={"precision": name}) for name in models}
    feeds = draw(signature.inputs, {}, {"image": (4, 3, 32, 32)}, 16)
    answers = {name: _scores(load(build(model, recipes[name], backend="onnxruntime")), feeds) for name, model in models.items()}
    _, timings = profile_onnxruntime(exported, feeds)
    findings = {
        "kernels": {
            name: len(build(model, recipes[name], backend="tensorrt_rtx").layers.kernels) for name, model in models.items()
        },
        "sqnr_db": {name: round(decibels(answers["fp32"], answers[name]), 1) for name in ("fp16", "int8")},
        "slowest": timings.heaviest(1)[0].name,
    }
    return files | {FINDINGS: json.dumps(findings, indent=2).encode()}


def _scores(engine, feeds) -> np.ndarray:  # type: ignore[no-untyped-def]
    scores: np.ndarray = engine.infer(feeds)["scores"].astype(np.float64)
    return scores
