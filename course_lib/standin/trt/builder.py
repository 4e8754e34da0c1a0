"""The stand-in's builder: it checks, tells its progress, and writes plans."""

# ruff: noqa: D101, D102  (NVIDIA documents these classes and calls)

from __future__ import annotations

from typing import Any

from course_lib.standin import gpu
from course_lib.standin.conforming import Template
from course_lib.standin.onnx_model import OnnxModel
from course_lib.standin.plan_file import Header, write_plan
from course_lib.standin.trt.values import call_user, report

_PHASES = (("Cloning network graph", 3), ("Preparing graph for optimization", 4), ("Building engine from subgraph", 5))


class Builder(Template):
    def __init__(self, logger: Any) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> Any:
        return self._trt.INetworkDefinition._make(self._logger, flags)

    def create_builder_config(self) -> Any:
        return self._trt.IBuilderConfig._make(self._logger)

    def create_optimization_profile(self) -> Any:
        return self._trt.IOptimizationProfile._make(self._logger)

    @property
    def platform_has_fast_fp16(self) -> bool:
        return True

    def build_serialized_network(self, network: Any, config: Any) -> Any:
        model = network._model
        if rejection := _validate(model, config):
            return self._reject(f"Error Code 4: API Usage Error ({rejection})")
        if config._monitor is not None and not _report_progress(config._monitor):
            return self._reject("Error Code 7: BuildCanceled (Build canceled by user)")
        if rejection := model.check():
            return self._reject(f"Error Code 9: API Usage Error ({rejection})")
        if config._timings is not None:
            config._timings._entries |= {node.op_type.encode() for node in model.nodes}
        header = self._header(network, config)
        model = OnnxModel(model.serialized())
        if "STRIP_PLAN" in header.flags:
            model.replace({name: model.weight(name) * 0 for name in header.refittable})
        return self._trt.IHostMemory(write_plan(header, model.serialized()))

    def _header(self, network: Any, config: Any) -> Header:
        members = self._trt.BuilderFlag.__members__
        flags = [name for name, flag in members.items() if config._flags >> int(flag) & 1]
        if "STRIP_PLAN" in flags and not {"REFIT", "REFIT_IDENTICAL", "REFIT_INDIVIDUAL"} & set(flags):
            flags.append("REFIT_IDENTICAL")
        everything = {"REFIT", "REFIT_IDENTICAL"} & set(flags)
        return Header(
            version=self._trt.__version__,
            capability=list(gpu.current().capability),
            hardware_compatibility=config._hardware.name,
            flags=flags,
            profiles=[dict(profile._ranges) for profile in config._profiles] or [{}],
            verbosity=config._verbosity.name,
            name=network._name,
            refittable=list(network._model.refittable()) if everything else [],
        )

    def _reject(self, text: str) -> None:
        report(self._logger, "ERROR", f"IBuilder::buildSerializedNetwork: {text}")


def _validate(model: OnnxModel | None, config: Any) -> str:
    """Why the network and the profiles do not fit; the words are those of TensorRT for RTX 1.7, which shares this code."""
    if model is None:
        return "Network must have at least one output."
    dynamic = [name for name in model.inputs if -1 in model.shapes[name]]
    if dynamic and not config._profiles:
        return "Network has dynamic or shape inputs, but no optimization profile has been defined."
    for index, profile in enumerate(config._profiles):
        for name in model.inputs:
            if name not in profile._ranges:
                if name in dynamic:
                    return f"Dynamic input tensor {name} is missing dimensions in profile {index}."
                continue
            low, best, high = profile._ranges[name]
            if len(low) != len(model.shapes[name]):
                return f"Number of dimensions of tensor {name} and of profile {index} differ."
            for axis, size in enumerate(model.shapes[name]):
                if size >= 0 and {low[axis], best[axis], high[axis]} != {size}:
                    found = f"profile has min={low[axis]}, opt={best[axis]}, max={high[axis]} but tensor has {size}"
                    return f"Dimension mismatch for tensor {name} and profile {index}. At dimension axis {axis}, {found}."
    return ""


def _report_progress(monitor: Any) -> bool:
    """Tell the monitor nested phases; False if it asks to stop, and then no more steps, but the end of each open phase."""
    call_user("phase_start", monitor.phase_start, "Building engine", None, len(_PHASES))
    going = True
    for step, (phase, steps) in enumerate(_PHASES):
        call_user("phase_start", monitor.phase_start, phase, "Building engine", steps)
        for i in range(steps):
            going = going and bool(call_user("step_complete", monitor.step_complete, phase, i))
        call_user("phase_finish", monitor.phase_finish, phase)
        going = going and bool(call_user("step_complete", monitor.step_complete, "Building engine", step))
        if not going:
            break
    call_user("phase_finish", monitor.phase_finish, "Building engine")
    return going
