"""Puts the doubles where code under test looks for the real ones."""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.doubles import cuda_double, libcuda, tensorrt_double


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> Any:
    """Let ``import tensorrt``, ``import pycuda.driver`` and ``ctypes.CDLL("libcuda.so.1")`` find the doubles.

    What the code under test has cached of the real ones it has to forget itself.

    Returns:
        the `tensorrt` module.
    """
    trt = tensorrt_double.make(version)
    package: Any = ModuleType("pycuda")
    package.driver = cuda_double
    driver, load = libcuda.LibCuda(), ctypes.CDLL

    def load_library(name: str | None, *args: Any, **kwargs: Any) -> Any:
        return driver if name == "libcuda.so.1" else load(name, *args, **kwargs)

    for name, module in (("tensorrt", trt), ("pycuda", package), ("pycuda.driver", cuda_double)):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(ctypes, "CDLL", load_library)
    return trt
