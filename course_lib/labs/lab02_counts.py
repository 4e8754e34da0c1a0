"""What the networks of lab 02 become: their kernels, counted on engines that are built where the hand-in is built."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from course_lib.engines import LayerTable
from course_lib.engines.cache import PlanCache
from course_lib.errors import ExaminerFault
from course_lib.labs.lab02_causes import PARTS
from course_lib.labs.reference import ours
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    from torch import nn

OPSET = 17  # the newest that every builder of the course reads, and names of nodes that are the same on every machine
RECIPE = Recipe(profiles=(Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}),))


@cache
def given_layers(builder: str) -> LayerTable:
    """The layer table of the network as it was given."""
    from course_lib.labs.lab02_network import slow_classifier

    return _layers(slow_classifier(), builder)


@cache
def reference_kernels(builder: str) -> int:
    """How many kernels the reference has."""
    from course_lib.labs.lab02_reference import rewritten

    return len(_layers(rewritten(), builder).kernels)


@cache
def costs(builder: str) -> Mapping[str, int]:
    """For each suspect, how many kernels it adds when it is the only one left in the reference."""
    from course_lib.labs.lab02_reference import rewritten

    alone = {suspect: len(_layers(rewritten(still=[suspect]), builder).kernels) for suspect in PARTS}
    return {suspect: kernels - reference_kernels(builder) for suspect, kernels in alone.items()}


def _layers(network: nn.Module, builder: str) -> LayerTable:
    """No sandbox: this is the course's own network. And kept: TensorRT 8.6 takes minutes for all eleven of them.

    Raises:
        ExaminerFault: it cannot be built, or the builder tells no kernels.
    """
    from course_lib.models import export_onnx

    with TemporaryDirectory() as folder:
        model = Path(folder, "model.onnx")
        export_onnx(network, model, opset=OPSET)
        with ours():
            layers = PlanCache().build(model, RECIPE, backend=builder).plan.layers
    if not layers.kernels:
        raise ExaminerFault(f"{builder} does not tell which kernels its engines have")
    return layers
