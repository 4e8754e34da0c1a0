"""Operators of one's own: RoPE from its formula to a CUDA kernel, to plugins in Python and C++, to a node in an ONNX model.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.lazy import lazy

if TYPE_CHECKING:
    from course_lib.plugins.compilers import compile_for_host, compile_with_nvcc
    from course_lib.plugins.cpp_plugin import build_plugin
    from course_lib.plugins.launchers import Launcher, PycudaRope, RopeLibrary, cuda_launcher, host_launcher, rope_on_host
    from course_lib.plugins.onnx_op import expand_rope, rope_model, rope_node
    from course_lib.plugins.python_plugin import RopePlugin, register_rope, rope_plugin
    from course_lib.plugins.quick_plugin import quick_rope
    from course_lib.plugins.reference import rope, rope_tables

_LAZY = {
    "Launcher": "launchers",
    "PycudaRope": "launchers",
    "RopeLibrary": "launchers",
    "RopePlugin": "python_plugin",
    "build_plugin": "cpp_plugin",
    "compile_for_host": "compilers",
    "compile_with_nvcc": "compilers",
    "cuda_launcher": "launchers",
    "expand_rope": "onnx_op",
    "host_launcher": "launchers",
    "quick_rope": "quick_plugin",
    "register_rope": "python_plugin",
    "rope": "reference",
    "rope_model": "onnx_op",
    "rope_node": "onnx_op",
    "rope_on_host": "launchers",
    "rope_plugin": "python_plugin",
    "rope_tables": "reference",
}

__all__ = [
    "Launcher",
    "PycudaRope",
    "RopeLibrary",
    "RopePlugin",
    "build_plugin",
    "compile_for_host",
    "compile_with_nvcc",
    "cuda_launcher",
    "expand_rope",
    "host_launcher",
    "quick_rope",
    "register_rope",
    "rope",
    "rope_model",
    "rope_node",
    "rope_on_host",
    "rope_plugin",
    "rope_tables",
]

__getattr__, __dir__ = lazy(__name__, _LAZY)
