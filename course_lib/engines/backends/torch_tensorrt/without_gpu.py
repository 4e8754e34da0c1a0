"""Torch-TensorRT's released package on a machine without a GPU: this module holds everything that is replaced, and says why.

`load` returns the package. With a usable GPU nothing is replaced, and the package of the environment is returned. Without one:

| replaced | why |
|---|---|
| questions to torch.cuda about the device | the import and the compiler ask them; a chosen target answers |
| ``torch._C._CudaDeviceProperties`` | an annotation names it; the CPU build of torch lacks it |
| ``Device.to(torch.device)`` | the compiler moves modules and inputs to it; they stay on the CPU |
| ``pwd.getpwuid`` during the import, for a user without a name | the name is part of a path; the sandbox's user has none |
| ``trt.Runtime`` of the interpreter | after a build it loads the plan on the GPU; the plan stays bytes |
| ``TorchTensorRTModule.setup_engine`` and ``forward`` | they load and run the plan; PyTorch computes the lowered graph of the block |
| ``torch_tensorrt.save`` | it traces the module, and would write the lowered graph in place of the plans; it raises an error |
| the logger and the profiling verbosity of a build | so that each engine has its layer table, as with the package's ``Debugger`` |

Export, decompositions, lowering passes, converters, partitioners, settings and builds are the released ones. A plan's own numbers are
not computed: the answers of a compiled module are those of its lowered graph.

The replacements change torch for the whole process. So call `load` in a process of its own: `blocks.examine` starts one, and a notebook
has one.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import sys
import types
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any
from unittest import mock

from course_lib.engines.backends.tensorrt.log import keep_log
from course_lib.engines.backends.torch_tensorrt.installation import FOLDER, INSTALL, RELEASE, installed_release
from course_lib.errors import BackendUnavailable

CAPABILITY, GPU, MEMORY = (8, 9), "NVIDIA GeForce RTX 4090", 24 << 30  # the target for which engines are built


def hide_gpus() -> None:
    """Let this process do without a GPU, so that what it builds is the same on every machine. Call it before torch is used."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


@cache
def load() -> types.ModuleType:
    """The package ``torch_tensorrt``, ready to export, partition, convert and build on this machine.

    Raises:
        BackendUnavailable: it is not installed, cannot be imported, or is another release, which may need other replacements.
    """
    import torch

    if torch.cuda.is_available():
        return _of_environment()
    if (found := installed_release()) != RELEASE:
        raise BackendUnavailable(
            f"Torch-TensorRT without a GPU needs torch-tensorrt-rtx {RELEASE} in {FOLDER}, found {found or 'none'}: {INSTALL}"
        )
    _answer_for_target(torch)
    sys.path.insert(0, str(FOLDER))  # before another build of the package, for machines with a GPU
    logging.getLogger("torch_tensorrt").setLevel(logging.ERROR)  # it warns that it has no GPU and no modelopt
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with warnings.catch_warnings(), _named_user(), quiet[0], quiet[1]:
        warnings.simplefilter("ignore")
        import torch_tensorrt
    if torch_tensorrt.__version__.partition("+")[0] != RELEASE:
        raise BackendUnavailable(
            f"expected torch_tensorrt {RELEASE} from {FOLDER}, found {torch_tensorrt.__version__} at {torch_tensorrt.__file__}: "
            "start a process that has not imported it"
        )
    _stay_on_cpu(torch)
    _keep_plans()
    _replace(torch_tensorrt, "save", _reject_saving)
    return torch_tensorrt


def _of_environment() -> types.ModuleType:
    try:
        import torch_tensorrt
    except (ImportError, OSError, RuntimeError) as error:  # it is absent, or a TensorRT or a torch of another version
        raise BackendUnavailable(
            f"torch_tensorrt cannot be imported ({' '.join(str(error).split())[:300]}): torch, torch-tensorrt and tensorrt must fit "
            "together, pip install 'tensorrt-course[gpu]' has a set"
        ) from None
    module: types.ModuleType = torch_tensorrt
    return module


@contextlib.contextmanager
def _named_user() -> Iterator[None]:
    """A name for this process's user, which the import asks for, where the system has none: in the sandbox."""
    import pwd

    try:
        pwd.getpwuid(os.getuid())
        replaced: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    except KeyError:
        replaced = mock.patch.object(pwd, "getpwuid", lambda uid: ("nobody",))
    with replaced:
        yield


def _replace(owner: Any, name: str, value: Any) -> Any:
    """Put `value` in the place of an attribute, and return the old one.

    Raises:
        BackendUnavailable: there is none, so the release is another one than this module was written for.
    """
    if not hasattr(owner, name):
        where = getattr(owner, "__name__", type(owner).__name__)
        raise BackendUnavailable(
            f"{where} has no {name}, which {__name__} replaces: this torch or Torch-TensorRT differs from {RELEASE}, {INSTALL}"
        )
    old = getattr(owner, name)
    setattr(owner, name, value)
    return old


def _reject_saving(*args: Any, **keywords: Any) -> None:
    raise BackendUnavailable(
        "torch_tensorrt.save needs a GPU: it runs the module once, and here the file would hold the lowered graph without its plans"
    )


def _answer_for_target(torch: Any) -> None:
    properties = types.SimpleNamespace(
        name=GPU, major=CAPABILITY[0], minor=CAPABILITY[1], multi_processor_count=128, total_memory=MEMORY
    )
    answers = {
        "get_device_capability": lambda device=None: CAPABILITY,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_name": lambda device=None: GPU,
        "get_device_properties": lambda device=None: properties,
        "set_device": lambda device: None,
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: None,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
    }
    for name, answer in answers.items():
        _replace(torch.cuda, name, answer)
    if not hasattr(torch._C, "_CudaDeviceProperties"):
        torch._C._CudaDeviceProperties = type("_CudaDeviceProperties", (), {})


def _stay_on_cpu(torch: Any) -> None:
    from torch_tensorrt import Device

    def to(self: Any, target: Any, use_default: bool = False) -> Any:
        return torch.device("cpu") if target is torch.device else convert(self, target, use_default)

    convert = _replace(Device, "to", to)


class _Unloaded:
    """A plan in the place of an engine that would be loaded."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def serialize(self) -> Any:
        return self.plan


class _Idle:
    """What a compiled module asks of its engine before the first call."""

    def set_output_tensors_as_unowned(self, enabled: bool) -> None:
        pass

    def are_output_tensors_unowned(self) -> bool:
        return False


class _Runtime:
    def __init__(self, logger: Any) -> None:
        pass

    def deserialize_cuda_engine(self, plan: Any) -> _Unloaded:
        return _Unloaded(plan)


class _WithoutRuntime(types.ModuleType):
    """TensorRT's package with another ``Runtime``, for one module that imports it."""

    def __init__(self, trt: Any) -> None:
        super().__init__(trt.__name__)
        self._trt, self.Runtime = trt, _Runtime

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trt, name)


def _keep_plans() -> None:
    from torch_tensorrt.dynamo import _compiler as compiler
    from torch_tensorrt.dynamo.conversion import _TRTInterpreter as interpreter
    from torch_tensorrt.dynamo.runtime import TorchTensorRTModule

    trt = interpreter.trt
    log = keep_log(trt)
    _replace(interpreter, "TRT_LOGGER", log)
    _replace(interpreter, "trt", _WithoutRuntime(trt))

    def populate(self: Any, *args: Any, **keywords: Any) -> Any:
        config = populate_config(self, *args, **keywords)
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
        return config

    def convert(module: Any, *args: Any, **keywords: Any) -> Any:
        lowered = copy.deepcopy(module)  # the conversion deletes its constants
        log.layers = ""
        log.take()
        try:
            engine = convert_module(module, *args, **keywords)
        except RuntimeError as error:
            raise RuntimeError(f"{error} TensorRT's log: {log.take()}") from None
        engine.lowered, engine.layer_log = lowered, log.layers
        return engine

    def forward(self: Any, *inputs: Any) -> Any:
        return self.lowered(*inputs)

    populate_config = _replace(interpreter.TRTInterpreter, "_populate_trt_builder_config", populate)
    convert_module = _replace(compiler, "convert_module", convert)
    _replace(TorchTensorRTModule, "setup_engine", lambda self: setattr(self, "engine", _Idle()))
    _replace(TorchTensorRTModule, "forward", forward)
