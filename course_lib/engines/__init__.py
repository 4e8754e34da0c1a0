"""Engines: one backend a module behind one small protocol, the layer table of a plan, and workers."""

from course_lib.engines.backends import Backend, available_backends, load
from course_lib.engines.base import Engine, ModelSource, Plan, TensorInfo
from course_lib.engines.build import Compiler, build, default_builder, default_runner
from course_lib.engines.environments import Environment, environments, split_target
from course_lib.engines.layers import Layer, LayerTable, LayerTensor
from course_lib.engines.worker import Worker

__all__ = [
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
