"""Turn a recipe into TensorRT's `IBuilderConfig`: flags, memory, precision, target devices, profiles.

Only this module handles the differences between versions of the config, with `hasattr` and enum members.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from course_lib.engines.cuda import driver
from course_lib.errors import FIXED_DIMENSION, PROFILE, BuildError

MIB = 1 << 20
# Runs of a tactic whose mean is its time, 1 by default. On a busy host, engines built with 8 were 1.04 times as slow as those built
# alone, and with 1 they were 1.13 times as slow, on an H100.
TIMING_ITERATIONS = 8
DEFAULT_TARGET = "sm89"  # where the build machine has no GPU to ask, or one that TensorRT for RTX does not support
_PRODUCTS = {"CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY"}
_UNBOUND = {"CAST", "CONSTANT", "GATHER", "IDENTITY", "SHAPE"}  # they compute nothing, or their type is their own


def configure(trt: Any, builder: Any, network: Any, recipe: Mapping[str, Any], backend: str) -> tuple[Any, tuple[str, ...]]:
    """The configuration for a build, and the compute capabilities that its plan will run on.

    Raises:
        BuildError: the recipe requires something that this version, GPU or network does not have.
    """
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # without it a plan does not tell its layers
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, recipe["workspace_mib"] * MIB)
    config.builder_optimization_level = recipe["optimization_level"]
    _set_flags(trt, config, recipe)
    if recipe["precision"] == "fp16":
        demand_half(trt, network, config)
    config.avg_timing_iterations = TIMING_ITERATIONS
    restrict_tactic_sources(trt, config)
    share_profiles(trt, config)
    _set_hardware_compatibility(trt, config, recipe)
    targets = _set_targets(trt, config, recipe, backend)
    _add_profiles(builder, network, config, recipe["profiles"])
    return config, targets


def network_flags(trt: Any) -> int:
    """Explicit batch if the version needs the flag (8.6), strong typing if there is a choice (10, RTX)."""
    known = trt.NetworkDefinitionCreationFlag.__members__
    wanted = ("STRONGLY_TYPED",) if "STRONGLY_TYPED" in known else ("EXPLICIT_BATCH",)
    return sum(1 << int(known[name]) for name in wanted if name in known)


def _set_flags(trt: Any, config: Any, recipe: Mapping[str, Any]) -> None:
    known = {name.lower(): flag for name, flag in trt.BuilderFlag.__members__.items()}
    if unknown := [flag for flag in recipe["flags"] if flag not in known]:
        raise BuildError(f"no builder flag {unknown[0]!r} in TensorRT {trt.__version__}: it has {', '.join(sorted(known))}")
    config.flags = 0  # TF32 is on by default: what the recipe does not name is off
    for flag in recipe["flags"]:
        config.set_flag(known[flag])
    if weakly_typed(trt) and recipe["precision"] in known:
        config.set_flag(known[recipe["precision"]])


def restrict_tactic_sources(trt: Any, config: Any) -> None:
    """Restrict the libraries for tactics if an installation lacks some of them (cuBLAS, cuDNN in 8.6)."""
    wanted = os.environ.get("COURSE_TACTIC_SOURCES")
    if wanted:
        config.set_tactic_sources(sum(1 << int(trt.TacticSource.__members__[name]) for name in wanted.split(",")))


def share_profiles(trt: Any, config: Any) -> None:
    """Let several contexts use one profile at the same time. TensorRT 10 and later always allow it; 8.6 needs a flag."""
    feature = trt.PreviewFeature.__members__.get("PROFILE_SHARING_0806")
    if feature is not None and weakly_typed(trt):
        config.set_preview_feature(feature, True)


def _set_hardware_compatibility(trt: Any, config: Any, recipe: Mapping[str, Any]) -> None:
    known = {name.lower(): level for name, level in trt.HardwareCompatibilityLevel.__members__.items()}
    wanted = recipe["hardware_compatibility"]
    if wanted not in known:
        raise BuildError(f"TensorRT {trt.__version__} has no hardware compatibility {wanted!r}: it has {', '.join(known)}")
    config.hardware_compatibility_level = known[wanted]


def _set_targets(trt: Any, config: Any, recipe: Mapping[str, Any], backend: str) -> tuple[str, ...]:
    """Compute capabilities to compile for: the recipe's, otherwise this GPU's if it is supported, otherwise `DEFAULT_TARGET`.

    With ``hardware_compatibility = "ampere_plus"`` the plan also runs on every later one, written ``"sm80+"``.
    """
    targets, here = recipe["targets"], driver.capability()
    if not hasattr(config, "num_compute_capabilities"):  # TensorRT compiles for the GPU it runs on
        if any(target != here for target in targets):
            raise BuildError(
                f"{backend} builds only for this machine's GPU ({here}), but the recipe's targets are {', '.join(targets)}"
            )
        return ("sm80+",) if recipe["hardware_compatibility"] == "ampere_plus" else (here,) if here else ()
    known = {name.lower(): value for name, value in trt.ComputeCapability.__members__.items() if name.startswith("SM")}
    chosen = tuple(targets) or (here if here in known else DEFAULT_TARGET,)
    if unknown := [target for target in chosen if target not in known]:
        raise BuildError(f"{backend} {trt.__version__} cannot compile for {unknown[0]}: it can compile for {', '.join(known)}")
    config.num_compute_capabilities = len(chosen)
    for index, target in enumerate(chosen):
        config.set_compute_capability(known[target], index)
    return chosen


def _add_profiles(builder: Any, network: Any, config: Any, profiles: list[dict[str, Any]]) -> None:
    tensors = [network.get_input(i) for i in range(network.num_inputs)]
    if sizes := [tensor.name for tensor in tensors if tensor.is_shape_tensor]:
        raise BuildError(
            f"input {sizes[0]!r} is a shape tensor: other shapes depend on its values, so TensorRT needs the smallest, best and "
            "largest values in a profile. A recipe's profile holds shapes only: make this input a constant of the graph",
            code=PROFILE,
        )
    inputs = {tensor.name: tuple(tensor.shape) for tensor in tensors}
    dynamic = [name for name, shape in inputs.items() if -1 in shape]
    if dynamic and not profiles:
        shape = ", ".join("N" if n < 0 else str(n) for n in inputs[dynamic[0]])
        raise BuildError(
            f"input {dynamic[0]!r} has dynamic dimensions ({shape}) and the recipe has no profile: "
            f"add [[profile]] with {dynamic[0]} = {{ min = [...], opt = [...], max = [...] }}",
            code=PROFILE,
        )
    for index, ranges in enumerate(profiles):
        check_profile(f"profile {index}", ranges, inputs)
        profile = builder.create_optimization_profile()
        for name, bounds in ranges.items():
            try:
                profile.set_shape(name, bounds["min"], bounds["opt"], bounds["max"])
            except (TypeError, ValueError):  # a number that does not fit TensorRT's type of a dimension
                raise BuildError(f"profile {index}: {bounds['max']} is not a shape for input {name!r}", code=PROFILE) from None
        if config.add_optimization_profile(profile) < 0:
            raise BuildError(f"profile {index} was rejected: its ranges contradict the network", code=PROFILE)


def check_profile(source: str, ranges: Mapping[str, Any], inputs: Mapping[str, tuple[int, ...]]) -> None:
    """The compiler accepts a wrong name and complains about another input later. Errors begin with `source`, such as "profile 0"."""
    for name, bounds in ranges.items():
        if name not in inputs:
            raise BuildError(
                f"{source} names the input {name!r}, but the model's inputs are {', '.join(map(repr, inputs))}: use one name",
                code=PROFILE,
            )
        shape = inputs[name]
        if len(bounds["min"]) != len(shape):
            raise BuildError(
                f"{source}: input {name!r} has {len(shape)} dimensions, the shape gives {len(bounds['min'])}", code=PROFILE
            )
        for axis, size in enumerate(shape):
            found = {bounds[bound][axis] for bound in ("min", "opt", "max")}
            if size >= 0 and found != {size}:
                raise BuildError(
                    f"{source}: dimension {axis} of input {name!r} is always {size}, found {sorted(found)}",
                    code=FIXED_DIMENSION,
                )
    if missing := [name for name, shape in inputs.items() if -1 in shape and name not in ranges]:
        raise BuildError(f"{source} has no range for the dynamic input {missing[0]!r}", code=PROFILE)


def weakly_typed(trt: Any) -> bool:
    """Whether precision is permitted with builder flags (8.6) instead of being written in the graph."""
    return "STRONGLY_TYPED" not in trt.NetworkDefinitionCreationFlag.__members__


def demand_half(trt: Any, network: Any, config: Any) -> None:
    """Require FP16 instead of only permitting it. With the FP16 flag, 8.6 keeps FP32 where it was faster, without a report.

    It also ignores casts. In a graph of mixed types, layers that the author kept in FP32 are therefore bound to FP32, because they
    may overflow in FP16. Of the other layers, only those that multiply matrices are bound. The builder chooses for the cheap ones.
    Later versions take their types from the graph.
    """
    if not weakly_typed(trt):
        return
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    written = written_types(trt, network)
    mixed = trt.float16 in written.values()
    for layer in _layers(network):
        dtype = written.get(layer.get_output(0).name)
        if mixed and dtype == trt.float32 and layer.type.name not in _UNBOUND:
            layer.precision = trt.float32
            layer.set_output_type(0, trt.float32)  # or the tensor between two such layers may be stored in FP16
        elif layer.type.name in _PRODUCTS:
            layer.precision = trt.float16


def written_types(trt: Any, network: Any) -> dict[str, Any]:
    """The floating-point type that the graph has for each tensor, by name. Constants, and what is computed from them alone, are left out.

    The tensors of a parsed network do not tell: 8.6.0 says FP32 for all, also behind a cast to FP16. The types are those of the
    inputs, and only a cast changes them, since ONNX gives all inputs of an operator one type.
    """
    floats = (trt.float16, trt.float32)
    inputs = (network.get_input(index) for index in range(network.num_inputs))
    written = {tensor.name: tensor.dtype for tensor in inputs if tensor.dtype in floats}
    for layer in _layers(network):  # in the order of execution
        given = [
            written[tensor.name]
            for tensor in map(layer.get_input, range(layer.num_inputs))
            if tensor and tensor.name in written
        ]
        dtype = _target(trt, layer) if layer.type.name == "CAST" else given[0] if given else None
        if dtype in floats:
            outputs = map(layer.get_output, range(layer.num_outputs))
            written |= {tensor.name: dtype for tensor in outputs if tensor.dtype in floats}
    return written


def _layers(network: Any) -> list[Any]:
    return [network.get_layer(index) for index in range(network.num_layers)]


def _target(trt: Any, layer: Any) -> Any:
    layer.__class__ = trt.ICastLayer  # `get_layer` returns the base class, which has no `to_type`
    return layer.to_type
