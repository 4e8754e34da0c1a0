"""Engines: backends, one per module, with one small protocol, the layer table of a plan, and workers."""

from course_lib.engines.backend import Availability, Backend
from course_lib.engines.compiler import Compiler, build
from course_lib.engines.layers import Layer, LayerTable, LayerTensor
from course_lib.engines.plan import Engine, ModelSource, Plan, TensorInfo
from course_lib.engines.registry import available_backends, default_builder, default_runner, load
from course_lib.engines.worker.environment import Environment, environments, split_target
from course_lib.engines.worker.parent import Worker

__all__ = [
    "Availability",
    "Backend",
    "Compiler",
    "Engine",
    "Environment",
    "Layer",
    "LayerTable",
    "LayerTensor",
    "ModelSource",
    "Plan",
    "TensorInfo",
    "Worker",
    "available_backends",
    "build",
    "default_builder",
    "default_runner",
    "environments",
    "load",
    "split_target",
]
