"""What `engines.py` builds and measures: networks, a specification an engine, and the groups that are measured together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from benchmarks.engine_parts.run import Run
from course_lib.labs.lab02_fusion import reference
from course_lib.labs.lab02_fusion.given import slow_classifier
from course_lib.labs.lab07_dynamic_shapes import network as lab07_network
from course_lib.models import classifier, export_onnx
from course_lib.recipe import Profile, Recipe

DEFAULT, EVERY_OUTPUT = "tuned at 8", "every tensor an output"
BATCHES = (1, 2, 4, 8, 16, 32, 64)
WORKSPACES_MIB = (1, 16, 256)  # and 1024, the default
LEVELS = (0, 1, 2, 4, 5)  # and 3
TOKENS = 128  # the longest sequence of the encoder's second profile
Range = tuple[int, int, int]  # min, opt and max of a batch size


@dataclass(frozen=True)
class Spec:
    """One engine: the network, the batch ranges of its profiles, and what else its recipe says."""

    network: str = "wide"
    profiles: tuple[Range, ...] = ((1, 8, 64),)
    settings: Mapping[str, int] = field(default_factory=dict)

    def recipe(self) -> Recipe:
        make = _encoder_profile if self.network == "encoder" else _image_profile
        return Recipe(profiles=[make(place, sizes) for place, sizes in enumerate(self.profiles)], **self.settings)


def _image_profile(place: int, sizes: Range) -> Profile:
    return Profile(image={bound: (batch, 1, 32, 32) for bound, batch in zip(("min", "opt", "max"), sizes, strict=True)})


def _encoder_profile(place: int, sizes: Range) -> Profile:
    """The first profile takes up to 32 tokens, the second the longer sequences."""
    lengths = ((1, 32, 32), (33, 64, TOKENS))[place]
    both = {bound: pair for bound, *pair in zip(("min", "opt", "max"), sizes, lengths, strict=True)}
    return Profile(
        tokens={bound: (*pair, 32) for bound, pair in both.items()}, mask={bound: tuple(p) for bound, p in both.items()}
    )


TIMED = {  # built one at a time: how long that takes is a result
    DEFAULT: Spec(),
    **{f"workspace {mib} MiB": Spec(settings={"workspace_mib": mib}) for mib in WORKSPACES_MIB},
    **{f"level {level}": Spec(settings={"optimization_level": level}) for level in LEVELS},
}
OTHERS = {
    "tuned at 1": Spec(profiles=((1, 1, 64),)),
    "tuned at 64": Spec(profiles=((1, 64, 64),)),
    "three profiles": Spec(profiles=((1, 1, 1), (2, 8, 8), (9, 64, 64))),
    "as given": Spec("slow"),
    "rewritten": Spec("rewritten"),
    EVERY_OUTPUT: Spec("outputs"),
    "two profiles, classifier": Spec(profiles=((1, 8, 8), (9, 64, 64))),
    "two profiles, encoder": Spec("encoder", ((1, 8, 8), (1, 8, 8))),
}
SPECS = {**TIMED, **OTHERS}


@dataclass(frozen=True)
class Group:
    """Engines that are measured interleaved; speedups are over the first."""

    name: str
    engines: tuple[str, ...]
    batches: tuple[int, ...]


GROUPS = (
    Group("profiles", (DEFAULT, "tuned at 1", "tuned at 64", "three profiles"), BATCHES),
    Group("workspace", (DEFAULT, *(f"workspace {mib} MiB" for mib in WORKSPACES_MIB)), (8, 64)),
    Group("level", (DEFAULT, *(f"level {level}" for level in LEVELS)), (8, 64)),
    Group("fusion, lab 02's classifier", ("as given", "rewritten"), (1, 8, 64)),
    Group("fusion, wide classifier", (EVERY_OUTPUT, DEFAULT), (1, 8, 64)),
)
# Shapes that take turns, one in each profile, by engine.
SWITCHED: Mapping[str, Sequence[Mapping[str, tuple[int, ...]]]] = {
    "two profiles, classifier": ({"image": (8, 1, 32, 32)}, {"image": (64, 1, 32, 32)}),
    "two profiles, encoder": ({"tokens": (8, 32, 32), "mask": (8, 32)}, {"tokens": (8, 64, 32), "mask": (8, 64)}),
}


def export(run: Run, opset: int | None, size: str) -> None:
    """Write the ONNX file of every network, unless it is there.

    Args:
        opset: newest that the builder reads.
        size: of the classifier, ``"wide"`` or ``"small"``.
    """
    makers = {
        "wide": lambda: export_onnx(classifier(size), opset=opset),  # type: ignore[arg-type]
        "outputs": lambda: every_tensor_an_output(onnx.load(run.model_file("wide"))),
        "slow": lambda: export_onnx(slow_classifier(), opset=opset),
        "rewritten": lambda: export_onnx(reference.rewritten(), opset=opset),
        "encoder": lambda: onnx.load_from_string(lab07_network.exported(opset)),
    }
    for name, make in makers.items():
        if not run.model_file(name).exists():
            onnx.save(make(), run.model_file(name))


def every_tensor_an_output(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which each float tensor that a node makes is an output too: a kernel that fused across it would lose it."""
    inferred = onnx.shape_inference.infer_shapes(model)
    known = {info.name: info for info in inferred.graph.value_info if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT}
    marked, there = onnx.ModelProto(), {value.name for value in model.graph.output}
    marked.CopyFrom(model)
    constants = {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    for name in (name for node in model.graph.node for name in node.output):
        if name in known and name not in there | constants:
            marked.graph.output.append(known[name])
    return marked


def images(batch: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Inputs of every network that is measured over batches."""
    return {"image": rng.random((batch, 1, 32, 32), dtype=np.float32)}
