"""ONNX and a recipe to a plan, for TensorRT 8.6, 10 and 11 and for TensorRT for RTX: one implementation over the imported module.

What differs between versions is probed here and nowhere else. The builder reports failure with return values (False, -1,
None) and log lines, and some failures end the process: call this in a worker.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.engines import cuda_driver
from course_lib.engines.base import Plan
from course_lib.engines.layer_sources import parse_build_log, parse_inspector
from course_lib.engines.layers import LayerTable
from course_lib.engines.trt import timing_cache
from course_lib.errors import BuildError

MIB = 1 << 20
DEFAULT_TARGET = "sm89"  # where the build machine has no GPU to ask

# A name with these parts could be read as a row of the layer table, and a layer table decides grades.
_FORGED_NAME = re.compile(r"[\[\]{},]|Datatype|LayerType")
_BUILDERS_OWN_NAME = re.compile(r"\(Unnamed Layer\* \d+\) \[[\w ]+\](_output(_\d+)?)?")

_ADVICE = (  # what the compiler's messages mean, and what to do
    (r"workspace|OutOfMemory", "the workspace is too small for any tactic of this network: raise `workspace_mib` in the recipe"),
    (r"Could not find any implementation", "no tactic implements a part of this network here: raise `workspace_mib` or rewrite it"),
    (r"must have same input types|strongly typed", "the graph mixes number types: cast both inputs of the node to one type"),
)  # fmt: skip


def compile_plan(trt: Any, backend: str, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str]) -> Plan:
    """Build a plan with the TensorRT module `trt`.

    Args:
        model: the ONNX file.
        recipe: plain JSON values of a `Recipe`.
        operators: operator type by ONNX node name, for the layer table.

    Raises:
        BuildError: the parser, a profile, the recipe or the compiler refuses; one line says what to change.
        PrecisionError: the layers do not have the recipe's precision.
    """
    log = _log(trt)
    builder = trt.Builder(log)
    network = builder.create_network(_network_flags(trt))
    _parse(trt, network, log, model, f"{backend} {trt.__version__}")
    _refuse_forged_names(network)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # without it a plan does not tell its layers
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe["workspace_mib"] * MIB)
    config.builder_optimization_level = recipe["optimization_level"]
    _set_flags(trt, config, recipe)
    if weakly_typed(trt) and recipe["precision"] == "fp16":
        _demand_half(trt, network, config)
    _set_tactic_sources(trt, config)
    targets = _set_targets(trt, config, recipe["targets"], backend)
    _add_profiles(builder, network, config, recipe["profiles"])

    timing_file = timing_cache.file_for(trt, backend)
    timings = timing_cache.use(config, timing_file) if timing_file else None

    started = time.perf_counter()
    serialized = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if serialized is None:
        raise BuildError(_advise(log.errors))
    if timing_file and timings is not None:
        timing_cache.keep(config, timings, timing_file)
    data = bytes(serialized)
    layers = _layers(trt, log, data, operators)
    layers.check_precision(recipe["precision"])
    return Plan(
        backend=backend,
        version=trt.__version__,
        data=data,
        onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
        recipe=dict(recipe),
        targets=targets,
        layers=layers,
        build_seconds=seconds,
        notes=tuple(_notes(recipe, targets, layers)),
    )


def _log(trt: Any) -> Any:
    class Log(trt.ILogger):
        """Keeps what explains a failure and the layer section; a verbose log of ResNet-50 would fill megabytes."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.layers = ""

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                self.errors = [*self.errors[-50:], message]
            elif message.startswith("Layers:"):
                self.layers = message

    return Log()


def _network_flags(trt: Any) -> int:
    """Explicit batch where it has to be said (8.6), strong typing where there is a choice (10, RTX)."""
    known = trt.NetworkDefinitionCreationFlag.__members__
    wanted = ("STRONGLY_TYPED",) if "STRONGLY_TYPED" in known else ("EXPLICIT_BATCH",)
    return sum(1 << int(known[name]) for name in wanted if name in known)


def weakly_typed(trt: Any) -> bool:
    """Whether precision is permitted with builder flags (8.6) instead of being written in the graph."""
    return "STRONGLY_TYPED" not in trt.NetworkDefinitionCreationFlag.__members__


def _parse(trt: Any, network: Any, log: Any, model: Path, version: str) -> None:
    parser = trt.OnnxParser(network, log)
    if parser.parse_from_file(str(model)):
        return
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    if not errors:
        raise BuildError(_advise(log.errors))
    if any("DESERIALIZE" in str(error.code()) for error in errors):
        raise BuildError("the file is not an ONNX model, or only a part of one")
    error = next((e for e in errors if _ask(e, "node_operator")), errors[-1])
    operator, node = _ask(error, "node_operator"), _ask(error, "node_name")
    where = f"operator {operator[:60]!r} of node {node[:60]!r}" if operator else "the model"
    said = " ".join(error.desc().split())
    if "Plugin not found" in said or "UNSUPPORTED" in str(error.code()):
        raise BuildError(f"{where} is not supported by {version}: rewrite it with other operators or bring a plugin for it")
    raise BuildError(f"{where} was refused by {version}: {_advise([said])}")


def _ask(error: Any, method: str) -> str:
    """`node_name` and `node_operator` came with TensorRT 10."""
    return str(getattr(error, method)()) if hasattr(error, method) else ""


def _refuse_forged_names(network: Any) -> None:
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    tensors += [layer.get_output(i) for layer in layers for i in range(layer.num_outputs)]
    for name in (named.name for named in (*layers, *tensors) if named is not None):
        harmless = name.isprintable() and not _FORGED_NAME.search(name)
        if not harmless and not _BUILDERS_OWN_NAME.fullmatch(name):
            raise BuildError(
                f"the name {name[:60]!r} in the graph holds brackets, braces, commas or control characters: rename it"
            )


def _set_flags(trt: Any, config: Any, recipe: Mapping[str, Any]) -> None:
    known = {name.lower(): flag for name, flag in trt.BuilderFlag.__members__.items()}
    if unknown := [flag for flag in recipe["flags"] if flag not in known]:
        raise BuildError(f"no builder flag {unknown[0]!r} in TensorRT {trt.__version__}: it has {', '.join(sorted(known))}")
    config.flags = 0  # TF32 is on by default: what the recipe does not name is off
    for flag in recipe["flags"]:
        config.set_flag(known[flag])
    if weakly_typed(trt) and recipe["precision"] in known:
        config.set_flag(known[recipe["precision"]])


def _demand_half(trt: Any, network: Any, config: Any) -> None:
    """Make a permission an order: 8.6 with the FP16 flag still keeps FP32 wherever that timed faster, and says nothing.

    Only layers that multiply matrices are bound; the builder knows best for the cheap ones around them.
    """
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    kinds = {trt.LayerType.CONVOLUTION, trt.LayerType.DECONVOLUTION, trt.LayerType.MATRIX_MULTIPLY}
    for layer in (network.get_layer(i) for i in range(network.num_layers)):
        if layer.type in kinds:
            layer.precision = trt.float16


def _set_tactic_sources(trt: Any, config: Any) -> None:
    """Restrict the libraries that tactics come from, where an installation lacks some of them (cuBLAS, cuDNN in 8.6)."""
    wanted = os.environ.get("COURSE_TACTIC_SOURCES")
    if wanted:
        config.set_tactic_sources(sum(1 << int(trt.TacticSource.__members__[name]) for name in wanted.split(",")))


def _set_targets(trt: Any, config: Any, targets: list[str], backend: str) -> tuple[str, ...]:
    """Compute capabilities to compile for: the recipe's, otherwise this GPU's, otherwise `DEFAULT_TARGET`."""
    here = cuda_driver.capability()
    if not hasattr(config, "num_compute_capabilities"):  # TensorRT compiles for the GPU it runs on
        if any(target != here for target in targets):
            raise BuildError(f"{backend} builds for the GPU at hand ({here}), the recipe's targets are {', '.join(targets)}")
        return (here,) if here else ()
    known = {name.lower(): value for name, value in trt.ComputeCapability.__members__.items() if name.startswith("SM")}
    chosen = tuple(targets) or (here or DEFAULT_TARGET,)
    if unknown := [target for target in chosen if target not in known]:
        raise BuildError(f"{backend} {trt.__version__} cannot compile for {unknown[0]}: it knows {', '.join(known)}")
    config.num_compute_capabilities = len(chosen)
    for index, target in enumerate(chosen):
        config.set_compute_capability(known[target], index)
    return chosen


def _add_profiles(builder: Any, network: Any, config: Any, profiles: list[dict[str, Any]]) -> None:
    inputs = {tensor.name: tuple(tensor.shape) for tensor in (network.get_input(i) for i in range(network.num_inputs))}
    dynamic = [name for name, shape in inputs.items() if -1 in shape]
    if dynamic and not profiles:
        shape = ", ".join("N" if n < 0 else str(n) for n in inputs[dynamic[0]])
        raise BuildError(
            f"input {dynamic[0]!r} has dynamic dimensions ({shape}) and the recipe has no profile: "
            f"add [[profile]] with {dynamic[0]} = {{ min = [...], opt = [...], max = [...] }}"
        )
    for index, ranges in enumerate(profiles):
        _check_profile(index, ranges, inputs, dynamic)
        profile = builder.create_optimization_profile()
        for name, bounds in ranges.items():
            try:
                profile.set_shape(name, bounds["min"], bounds["opt"], bounds["max"])
            except (TypeError, ValueError):  # a number that does not fit TensorRT's type of a dimension
                raise BuildError(f"profile {index}: {bounds['max']} is no shape for input {name!r}") from None
        if config.add_optimization_profile(profile) < 0:
            raise BuildError(f"profile {index} was refused: its ranges contradict the network")


def _check_profile(index: int, ranges: Mapping[str, Any], inputs: Mapping[str, tuple[int, ...]], dynamic: list[str]) -> None:
    """The compiler accepts a wrong name and complains about another input later, so the names are compared here."""
    for name, bounds in ranges.items():
        if name not in inputs:
            raise BuildError(f"profile {index} names the input {name!r}, the model's inputs are {', '.join(map(repr, inputs))}")
        shape = inputs[name]
        if len(bounds["min"]) != len(shape):
            raise BuildError(
                f"profile {index}: input {name!r} has {len(shape)} dimensions, the profile gives {len(bounds['min'])}"
            )
        for axis, size in enumerate(shape):
            found = {bounds[bound][axis] for bound in ("min", "opt", "max")}
            if size >= 0 and found != {size}:
                raise BuildError(
                    f"profile {index}: dimension {axis} of input {name!r} is always {size}, the profile says {sorted(found)}"
                )
    if missing := [name for name in dynamic if name not in ranges]:
        raise BuildError(f"profile {index} says nothing about the dynamic input {missing[0]!r}")


def _layers(trt: Any, log: Any, data: bytes, operators: Mapping[str, str]) -> LayerTable:
    if log.layers:  # TensorRT for RTX prints them while it builds, so no GPU is needed
        return parse_build_log(log.layers, operators)
    if cuda_driver.capability() is None:
        return LayerTable((), operators)
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    if engine is None:
        raise BuildError(f"the plan that was just built cannot be loaded: {_advise(log.errors)}")
    inspector = engine.create_engine_inspector()
    return parse_inspector(inspector.get_engine_information(trt.LayerInformationFormat.JSON), operators)


def _notes(recipe: Mapping[str, Any], targets: tuple[str, ...], layers: LayerTable) -> list[str]:
    notes = []
    if cuda_driver.capability() is None and not recipe["targets"]:
        notes.append(f"no GPU here, so the plan was compiled for {targets[0]}; say `targets` in the recipe for another one")
    if not any(kernel.dtypes for kernel in layers.kernels):
        notes.append("this version does not tell the datatypes of these layers, so the precision is not proved")
    return notes


def _advise(messages: list[str]) -> str:
    """The compiler's complaint as one line with advice, its source locations cut away."""
    text = " ".join(" ".join(messages).split())
    for pattern, advice in _ADVICE:
        if re.search(pattern, text, re.IGNORECASE):
            return advice
    own = [m for m in messages if "catchCudaError" not in m] or messages or ["the compiler gave no reason"]
    return re.sub(r"\s*\(?In \w+ at /\S+?\)?\s*$", "", " ".join(own[0].split()))[:300]
