"""Puts the stand-ins where a program looks for `tensorrt`, `pycuda.driver`, `cuda.bindings.runtime` and the CUDA driver."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from course_lib.standin import cuda_driver, cudart, libcuda, pycuda_modules, tensorrt_module

DEFAULT_VERSION = "10.16"
_DRIVER = "libcuda.so.1"


def install(version: str = DEFAULT_VERSION) -> Any:
    """Let ``import tensorrt`` and ``import pycuda.driver`` find the stand-ins, and print that they are stand-ins.

    A real TensorRT on a machine with a GPU stays in place.

    Args:
        version: of TensorRT, ``"10.16"`` or ``"11.4"``.

    Returns:
        the module `tensorrt`.

    Raises:
        ValueError: there is no stand-in for this version.
    """
    if has_real_tensorrt():
        trt = import_module("tensorrt")
        print(f"TensorRT {trt.__version__} with a GPU: the calls below run on it, and no stand-in was installed.")
        return trt
    sys.modules.update(modules(version))
    print(f"Stand-in for TensorRT {version}: it runs on this CPU through ONNX Runtime, and says nothing about speed.")
    return sys.modules["tensorrt"]


@contextmanager
def installed(version: str = DEFAULT_VERSION) -> Iterator[Any]:
    """The stand-ins inside the block, also if TensorRT is there, and the module `tensorrt` as its value. It prints nothing.

    ``ctypes.CDLL("libcuda.so.1")`` finds a stand-in too. What a program has kept of the real modules stays as it is.
    """
    before = _taken_out()
    load, ctypes.CDLL = ctypes.CDLL, library_loader()  # type: ignore[misc, assignment]
    sys.modules.update(modules(version))
    try:
        yield sys.modules["tensorrt"]
    finally:
        ctypes.CDLL = load  # type: ignore[misc]
        _taken_out()
        sys.modules.update(before)


def _taken_out() -> dict[str, ModuleType]:
    """The imported modules of these packages, which are imported no more."""
    names = [name for name in sys.modules if name.partition(".")[0] in ("tensorrt", "pycuda", "cuda")]
    return {name: sys.modules.pop(name) for name in names}


def modules(version: str) -> dict[str, ModuleType]:
    """The stand-ins by the names under which a program imports them."""
    package: Any = ModuleType("pycuda", "A stand-in for pycuda.")
    package.driver, package.__path__ = cuda_driver, pycuda_modules.__path__
    package.__spec__ = ModuleSpec("pycuda", None, is_package=True)
    cuda: Any = ModuleType("cuda", "A stand-in for cuda-python.")
    bindings: Any = ModuleType("cuda.bindings", "A stand-in for the bindings of cuda-python.")
    cuda.bindings, bindings.runtime, cuda.__path__, bindings.__path__ = bindings, cudart, [], []
    return {
        "tensorrt": tensorrt_module.make(version),
        "pycuda": package,
        "pycuda.driver": cuda_driver,
        "cuda": cuda,
        "cuda.bindings": bindings,
        "cuda.bindings.runtime": cudart,
    }


def library_loader() -> Callable[..., Any]:
    """A function in place of `ctypes.CDLL` that finds the stand-in for the CUDA driver, and all other libraries."""
    driver, load = libcuda.LibCuda(), ctypes.CDLL

    def load_library(name: str | None, *args: Any, **kwargs: Any) -> Any:
        return driver if name == _DRIVER else load(name, *args, **kwargs)

    return load_library


def has_real_tensorrt() -> bool:
    """Whether TensorRT, pycuda and a CUDA driver with a GPU are there."""
    if sys.modules.get("pycuda.driver") is cuda_driver or not (find_spec("tensorrt") and find_spec("pycuda")):
        return False
    try:
        status: int = ctypes.CDLL(_DRIVER).cuInit(0)
    except OSError:
        return False
    return status == 0
