"""The kernels of lab 02's networks, counted on engines from the same builder as the submission's."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from course_lib.engines import Compiler, LayerTable
from course_lib.engines.cache.plan_cache import PlanCache
from course_lib.errors import ExaminerFault
from course_lib.labs.framework.reference import absent, ours
from course_lib.labs.lab02_fusion.causes import PARTS
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    from torch import nn

OPSET = 17  # the newest that every builder of the course reads, and names of nodes that are the same on every machine
RECIPE = Recipe(profiles=(Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}),))


def given_layers(builder: str) -> LayerTable:
    """The layer table of the given network."""
    return _both(builder)["given"]


def reference_kernels(builder: str) -> int:
    """How many kernels the reference has."""
    return len(_both(builder)["reference"].kernels)


@cache
def costs(builder: str) -> Mapping[str, int]:
    """For each suspect, the number of kernels that it adds when it alone is left in the reference."""
    from course_lib.labs.lab02_fusion import reference

    alone = _layers({suspect: reference.rewritten(still=[suspect]) for suspect in PARTS}, builder)
    return {suspect: len(layers.kernels) - reference_kernels(builder) for suspect, layers in alone.items()}


@cache
def _both(builder: str) -> Mapping[str, LayerTable]:
    from course_lib.labs.lab02_fusion import reference
    from course_lib.labs.lab02_fusion.network import slow_classifier

    networks = {} if absent(reference) else {"reference": reference.rewritten()}
    return _layers({"given": slow_classifier(), **networks}, builder)


def _layers(networks: Mapping[str, nn.Module], builder: str) -> dict[str, LayerTable]:
    """Built without a sandbox, because these are the course's own networks, and in one process, because TensorRT 8.6 starts slowly.

    Raises:
        ExaminerFault: a network cannot be built, or the builder does not report kernels.
    """
    from course_lib.models import export_onnx

    found = {}
    with TemporaryDirectory() as folder, ours(), Compiler(builder) as compiler:
        for name, network in networks.items():
            model = Path(folder, f"{name}.onnx")
            export_onnx(network, model, opset=OPSET)
            found[name] = PlanCache().build_with(compiler, model, RECIPE).plan.layers
    if not all(layers.kernels for layers in found.values()):
        raise ExaminerFault(f"{builder} does not tell which kernels its engines have")
    return found
