"""The backends by name: whether each can be used here, how it compiles and how it loads."""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from course_lib.engines import cuda_driver
from course_lib.engines.base import Engine, ModelSource, Plan, check_target
from course_lib.engines.progress import Report
from course_lib.errors import BackendUnavailable, BuildError, PlanError
from course_lib.precision import LOWERED

_NO_GPU = "no NVIDIA GPU and driver answer on this machine"
_RTX_CAPABILITIES = {"sm75", "sm80", "sm86", "sm89", "sm120", "sm121"}


@dataclass(frozen=True)
class Backend:
    """What one backend can do on this machine. `no_build` and `no_run` hold the reason, empty where it can."""

    name: str
    version: str
    no_build: str = ""
    no_run: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def _tensorrt() -> Backend:
    found = _version("tensorrt")
    if not found:
        return _absent(
            "tensorrt", "tensorrt is not installed: pip install 'tensorrt-course[gpu]' on a machine with an NVIDIA GPU"
        )
    reason = "" if cuda_driver.capability() else _NO_GPU
    return Backend("tensorrt", found, reason, reason)


def _tensorrt_rtx() -> Backend:
    found = _version("tensorrt-rtx-cu13", "tensorrt_rtx")
    if not found:
        linux = platform.system() == "Linux" and platform.machine() == "x86_64"
        return _absent(
            "tensorrt_rtx", "pip install tensorrt-rtx-cu13" if linux else "TensorRT for RTX comes for x86-64 Linux here"
        )
    here = cuda_driver.capability()
    reason = "" if here in _RTX_CAPABILITIES else f"TensorRT for RTX does not run on {here}" if here else _NO_GPU
    return Backend("tensorrt_rtx", found, "", reason)


def _onnxruntime() -> Backend:
    found = _version("onnxruntime", "onnxruntime-gpu")
    return Backend("onnxruntime", found) if found else _absent("onnxruntime", "pip install onnxruntime")


def _torch() -> Backend:
    found = _version("torch")
    reason = "the baseline is not built: it runs the module as it is"
    return Backend("torch", found, reason) if found else _absent("torch", "pip install torch==2.13.0")


def _torch_tensorrt() -> Backend:
    found = _version("torch-tensorrt")
    if not found:
        return _absent(
            "torch_tensorrt",
            "torch-tensorrt is not installed: pip install 'tensorrt-course[gpu]' on a machine with an NVIDIA GPU",
        )
    no_build = "it compiles PyTorch modules, not ONNX files: call course_lib.engines.torch_trt.compile_module"
    return Backend("torch_tensorrt", found, no_build, "" if cuda_driver.capability() else _NO_GPU)


def _openvino() -> Backend:
    found = _version("openvino")
    return Backend("openvino", found) if found else _absent("openvino", "pip install 'tensorrt-course[openvino]'")


_PROBES: Mapping[str, Callable[[], Backend]] = {
    "tensorrt": _tensorrt,
    "tensorrt_rtx": _tensorrt_rtx,
    "onnxruntime": _onnxruntime,
    "torch": _torch,
    "torch_tensorrt": _torch_tensorrt,
    "openvino": _openvino,
}


def available_backends() -> tuple[Backend, ...]:
    """Every backend of the course, with the reason where it cannot build or run in this interpreter. Imports none of them."""
    return tuple(probe() for probe in _PROBES.values())


def backend(name: str) -> Backend:
    """One backend by name.

    Raises:
        BackendUnavailable: there is none of that name.
    """
    if name not in _PROBES:
        raise BackendUnavailable(f"no backend {name!r}: the course has {', '.join(_PROBES)}")
    return _PROBES[name]()


def compile_plan(name: str, model: Path, recipe: Mapping[str, Any], report: Report | None = None) -> Plan:
    """Build a plan in this process. `engines.build` does it in a worker, because a compiler can end its process.

    Args:
        report: is told how far the build has come, by compilers that tell.

    Raises:
        BackendUnavailable: the backend cannot build here.
        BuildError: the model or the recipe is refused.
    """
    if not model.is_file():
        raise BuildError(f"{model}: no such file")
    found = backend(name)
    if found.no_build:
        raise BackendUnavailable(f"{name} cannot build here: {found.no_build}")
    operators = operators_of(model, for_tensorrt=name.startswith("tensorrt"))
    if name == "onnxruntime":
        from course_lib.engines import ort

        return ort.compile_plan(name, model, recipe, operators)
    if name == "openvino":
        from course_lib.engines import openvino_cpu

        return openvino_cpu.compile_plan(name, model, recipe, operators)
    from course_lib.engines.trt import builder

    return builder.compile_plan(importlib.import_module(name), name, model, recipe, operators, report)


def load(source: Plan | ModelSource, *, weight_budget_bytes: int | None = None) -> Engine:
    """An engine in this process, from a plan or from the source of a PyTorch module.

    Args:
        weight_budget_bytes: for TensorRT, how much of the weights may stay on the device; see `trt.loaded.load`.

    Raises:
        BackendUnavailable: the backend cannot run here.
        PlanError: the plan is damaged or made for another device or version.
    """
    name = source.backend if isinstance(source, Plan) else "torch"
    found = backend(name)
    if isinstance(source, Plan):
        check_target(source, cuda_driver.capability())
    if found.no_run:
        raise BackendUnavailable(f"{name} cannot run here: {found.no_run}")
    if isinstance(source, ModelSource):
        from course_lib.engines.torch_engine import TorchEngine

        return TorchEngine(source)
    if name == "onnxruntime":
        from course_lib.engines.ort import OnnxRuntimeEngine

        return OnnxRuntimeEngine(source)
    if name == "openvino":
        from course_lib.engines.openvino_cpu import OpenVINOEngine

        return OpenVINOEngine(source)
    if not name.startswith("tensorrt"):
        raise PlanError(f"the backend {name} makes no plans: this one is not what it says")
    from course_lib.engines.trt.runtime import TensorRTEngine

    return TensorRTEngine(importlib.import_module(name), source, weight_budget_bytes=weight_budget_bytes)


def operators_of(model: Path, *, for_tensorrt: bool = False) -> dict[str, str]:
    """Operator type of each node by its name; empty where the environment has no onnx package.

    Raises:
        BuildError: this is no ONNX model, or with `for_tensorrt` none for TensorRT.
    """
    try:
        import onnx
    except ImportError:
        return {}
    try:
        loaded = onnx.load(model, load_external_data=False)
    except Exception as error:  # protobuf's own class, which differs between its versions
        raise BuildError(f"the file is not an ONNX model, or only a part of one ({type(error).__name__})") from None
    graph = loaded.graph
    if for_tensorrt and any(entry.key == LOWERED for entry in loaded.metadata_props):
        raise BuildError("this copy was lowered for ONNX Runtime, TensorRT needs the Q/DQ model that it was made from")
    if not graph.node and not graph.output:
        raise BuildError("the file is not an ONNX model: it has no graph")
    return {node.name or f"unnamed_{index}": node.op_type for index, node in enumerate(graph.node)}


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def _absent(name: str, advice: str) -> Backend:
    reason = advice if "not installed" in advice or "comes for" in advice else f"not installed: {advice}"
    return Backend(name, "", reason, reason)
