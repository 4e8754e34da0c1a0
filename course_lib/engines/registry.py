"""The backends by name, and the operations on a named backend."""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.engines import backends
from course_lib.engines.backend import Availability, Backend
from course_lib.engines.cuda import driver
from course_lib.engines.onnx_file import described
from course_lib.engines.plan import Engine, ModelSource, Plan, check_target
from course_lib.engines.progress import Report
from course_lib.errors import BackendUnavailable, BuildError, EngineError
from course_lib.precision import LOWERED


def all_backends() -> tuple[Backend, ...]:
    """The backends, in the order in which `default_runner` tries them, then by name."""
    found = _backends().values()
    return tuple(sorted(found, key=lambda one: (math.inf if one.runner_rank is None else one.runner_rank, one.name)))


def find(name: str) -> Backend:
    """One backend by name.

    Raises:
        BackendUnavailable: there is none of that name.
    """
    if name not in _backends():
        raise BackendUnavailable(f"no backend {name!r}: the course has {', '.join(one.name for one in all_backends())}")
    return _backends()[name]


def available_backends() -> tuple[Availability, ...]:
    """For each backend its version, and why it cannot build or run in this interpreter. Imports none of their libraries."""
    return tuple(map(_availability, all_backends()))


def availability(name: str) -> Availability:
    """The same for one backend.

    Raises:
        BackendUnavailable: there is none of that name.
    """
    return _availability(find(name))


def default_builder() -> str:
    """The first by `Backend.builder_rank` that can build here, or the last one: TensorRT, or TensorRT for RTX, which needs no GPU."""
    ranked = [one for one in all_backends() if one.builder_rank is not None]
    in_order = [_availability(one) for one in sorted(ranked, key=lambda one: one.builder_rank or 0)]
    return next((one for one in in_order if not one.no_build), in_order[-1]).name


def default_runner() -> str:
    """The first by `Backend.runner_rank` that can run engines here: TensorRT, TensorRT for RTX or ONNX Runtime.

    Raises:
        BackendUnavailable: no backend can run engines here.
    """
    candidates = [_availability(one) for one in all_backends() if one.runner_rank is not None]
    for candidate in candidates:
        if not candidate.no_run:
            return candidate.name
    reasons = "; ".join(f"{candidate.name}: {candidate.explained(candidate.no_run)}" for candidate in candidates)
    raise BackendUnavailable(f"no backend can run engines here ({reasons}). Install onnxruntime, which needs no GPU")


def compile_plan(name: str, model: Path, recipe: Mapping[str, Any], report: Report | None = None) -> Plan:
    """Build a plan in this process. `engines.build` does it in a worker, because a compiler can end its process.

    Args:
        model, recipe, report: see `Backend.compile`.

    Raises:
        BackendUnavailable: the backend cannot build here.
        BuildError, PrecisionError: see `Backend.compile`.
    """
    if not model.is_file():
        raise BuildError(f"{model}: no such file")
    backend = find(name)
    if (found := _availability(backend)).no_build:
        raise BackendUnavailable(f"{name} cannot build here: {found.explained(found.no_build)}")
    operators = operators_of(model, reject_lowered=not backend.builds_lowered_models)
    return backend.compile(model, recipe, operators, report)


def load(source: Plan | ModelSource, *, weight_budget_bytes: int | None = None) -> Engine:
    """Load an engine in this process, from a plan or from the source of a PyTorch module.

    Args:
        weight_budget_bytes: number of bytes of weights that may stay on the device, for backends that stream the rest.

    Raises:
        BackendUnavailable: the backend cannot run here.
        PlanError: the plan is damaged or made for another device or version.
        EngineError: the backend does not stream weights.
    """
    backend = find(source.backend)
    if isinstance(source, Plan):
        check_target(source, driver.capability())
    if (found := _availability(backend)).no_run:
        raise BackendUnavailable(f"{backend.name} cannot run here: {found.explained(found.no_run)}")
    if weight_budget_bytes is not None and not backend.streams_weights:
        raise EngineError(f"{backend.name} cannot stream weights: load it without a weight budget")
    if isinstance(source, ModelSource):
        return backend.load_module(source)
    return backend.load(source, weight_budget_bytes=weight_budget_bytes)


def operators_of(model: Path, *, reject_lowered: bool = False) -> dict[str, str]:
    """Operator type of each node by its name; empty if the environment has no onnx package.

    Raises:
        BuildError: see `described`; with `reject_lowered`, also a model that was lowered for ONNX Runtime.
    """
    loaded = described(model)
    if loaded is None:
        return {}
    if reject_lowered and any(entry.key == LOWERED for entry in loaded.metadata_props):
        raise BuildError("this copy was lowered for ONNX Runtime: build the Q/DQ model that it was made from")
    return {node.name or f"unnamed_{index}": node.op_type for index, node in enumerate(loaded.graph.node)}


@cache
def _backends() -> dict[str, Backend]:
    """The backends of `course_lib.engines.backends`: a module holds the class, and a package keeps it in its module ``backend``."""
    found: dict[str, Backend] = {}
    for info in pkgutil.iter_modules(backends.__path__, f"{backends.__name__}."):
        module = importlib.import_module(f"{info.name}.backend" if info.ispkg else info.name)
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__]
        found.update({value.name: value() for value in own if isinstance(value, type) and issubclass(value, Backend)})
    return found


def _availability(backend: Backend) -> Availability:
    """The backend's own availability, without the operations that its class does not implement."""
    found, own = backend.availability(), type(backend)
    if own.compile is Backend.compile:
        found = replace(found, no_build=found.no_build or "this backend does not build plans")
    if own.load is Backend.load and own.load_module is Backend.load_module:
        found = replace(found, no_run=found.no_run or "this backend does not run engines")
    return found
